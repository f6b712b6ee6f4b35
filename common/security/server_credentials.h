// Creates the credentials of gRPC servers.
#ifndef MUSTER_COMMON_SECURITY_SERVER_CREDENTIALS_H_
#define MUSTER_COMMON_SECURITY_SERVER_CREDENTIALS_H_

#include <memory>

#include "common/security/tls.h"
#include "grpcpp/security/server_credentials.h"

namespace muster::security {

// A certificate in `tls` enables TLS; a CA in it makes the server require client certificates
// signed by that CA. The files are checked for changes every ten seconds.
std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const TlsFiles& tls);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_SERVER_CREDENTIALS_H_
