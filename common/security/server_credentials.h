// Creates the credentials of gRPC servers.
#ifndef MUSTER_COMMON_SECURITY_SERVER_CREDENTIALS_H_
#define MUSTER_COMMON_SECURITY_SERVER_CREDENTIALS_H_

#include <memory>

#include "common/security/tls.h"
#include "grpcpp/security/server_credentials.h"

namespace muster::security {

// Whether a client must present a certificate in the handshake, or may be checked call by call.
enum class ClientCertificates { kRequired, kOptional };

// A certificate in `tls` enables TLS; a CA in it makes the server verify client certificates, which
// must be signed by that CA. The files are checked for changes every ten seconds.
std::shared_ptr<grpc::ServerCredentials> ServerCredentials(
    const TlsFiles& tls, ClientCertificates clients = ClientCertificates::kRequired);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_SERVER_CREDENTIALS_H_
