// Where this machine is on its networks.
#ifndef MUSTER_WORKER_AGENT_NETWORK_NETWORK_H_
#define MUSTER_WORKER_AGENT_NETWORK_NETWORK_H_

#include <string>

namespace muster::agent {

// The interface that carries `address`, a numeric one or a name that resolves to one: of
// 127.0.0.0/8 and ::1 the loopback interface. Empty when no interface here does, as behind an
// address translation. A name is looked up, which may take as long as that takes.
std::string InterfaceOf(const std::string& address);

// Tells whether two processes reach one another over loopback: equal for those of one network
// namespace of one boot of one machine. Empty when it cannot be told.
std::string NetworkIdentity();

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_NETWORK_NETWORK_H_
