// Client-side security: tokens and TLS credentials, and explanations of authentication failures.
#ifndef MUSTER_COMMON_SECURITY_CLIENT_SECURITY_H_
#define MUSTER_COMMON_SECURITY_CLIENT_SECURITY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/tls.h"
#include "common/version.h"

namespace muster::security {

// Credentials of a client. The token is the first available one of token_file, token and the
// coordinator's local token. With tls.ca the client uses TLS, with tls.cert, if set, as its client
// certificate.
struct ClientSecurity {
  std::string token_file;
  std::string token;
  // tls.cert is the certificate of a node, which needs no token: the local token is not used.
  bool has_node_certificate = false;
  TlsFiles tls;
  // The name that the server's certificate must have; empty: that of the target.
  std::string server_name;
  // Versions that each call carries.
  uint32_t protocol_version = kOldestProtocolVersion;
  uint32_t newest_protocol_version = kProtocolVersion;
  std::string software_version = kSoftwareVersion;
};

struct ClientToken {
  std::string token;
  std::string source;  // human-readable: "the token in FILE"
};

// Finds the token for `target`. Reads files at each call, so that a changed token takes effect.
// Errors name the places that were searched.
absl::StatusOr<ClientToken> FindToken(const ClientSecurity& security, const std::string& target);

// Checks the flags at program start: the TLS files (CheckTlsFiles), that the token file can be
// read, and that a client certificate comes with a CA.
absl::Status CheckClientSecurity(const ClientSecurity& security);

// Turns the failure of a call into an error with a remedy if credentials are its cause:
// UNAUTHENTICATED or PERMISSION_DENIED. Returns any other status unchanged. May block for a few
// seconds: for UNAVAILABLE, it contacts the coordinator again (ProbeTls) to find the reason.
absl::Status Explain(const absl::Status& status, const ClientSecurity& security,
                     const std::string& target);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_CLIENT_SECURITY_H_
