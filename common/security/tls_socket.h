// Opens TCP connections for short TLS handshakes.
#ifndef MUSTER_COMMON_SECURITY_TLS_SOCKET_H_
#define MUSTER_COMMON_SECURITY_TLS_SOCKET_H_

#include "common/http/address.h"
#include "common/security/private_file.h"

namespace muster::security {

// A blocking socket, connected within a second, whose reads and writes fail after two; without a
// descriptor if it cannot connect.
OwnedFd ConnectForHandshake(const Address& address);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_TLS_SOCKET_H_
