// This machine's interfaces and network namespace.
#ifndef MUSTER_COMMON_NETWORK_NETWORK_H_
#define MUSTER_COMMON_NETWORK_NETWORK_H_

#include <string>

namespace muster {

// The name of the interface that carries `address`, a numeric address or a host name; the loopback
// interface for 127.0.0.0/8 and ::1. Empty when no interface of this machine carries it, for
// example behind address translation. Resolving a host name may block.
std::string InterfaceOf(const std::string& address);

// Equal for two processes that reach each other over loopback: those in one network namespace of
// one boot of one machine. Empty when it cannot be determined.
std::string NetworkIdentity();

}  // namespace muster

#endif  // MUSTER_COMMON_NETWORK_NETWORK_H_
