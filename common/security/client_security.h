// How a client shows who it is, and whom it believes.
#ifndef MUSTER_COMMON_SECURITY_CLIENT_SECURITY_H_
#define MUSTER_COMMON_SECURITY_CLIENT_SECURITY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/tls.h"
#include "common/version.h"

namespace muster::security {

// The first of token_file, token and the coordinator's local token that is there counts. With
// tls.ca the client speaks TLS, and shows tls.cert where it has one.
struct ClientSecurity {
  std::string token_file;
  std::string token;
  TlsFiles tls;
  // What each call says of its program.
  uint32_t protocol_version = kProtocolVersion;
  std::string software_version = kSoftwareVersion;
};

struct ClientToken {
  std::string token;
  std::string source;  // for people: "from FILE"
};

// Read anew at each call, so that a token that changed is taken. The error says where it was looked
// for.
absl::StatusOr<ClientToken> FindToken(const ClientSecurity& security, const std::string& target);

// Whether the flags can be used: those of CheckTlsFiles, a token file that can be read, and no
// client certificate without a CA. For a program's start.
absl::Status CheckClientSecurity(const ClientSecurity& security);

// A call's failure in words that say what to do, where credentials are its cause: UNAUTHENTICATED
// or PERMISSION_DENIED. Any other is returned as it is. May block for a few seconds: it asks the
// coordinator once more (ProbeTls) what UNAVAILABLE does not say.
absl::Status Explain(const absl::Status& status, const ClientSecurity& security,
                     const std::string& target);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_CLIENT_SECURITY_H_
