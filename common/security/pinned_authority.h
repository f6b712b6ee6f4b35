// Finds the certificate authority of a server whose CA certificate is not known yet.
#ifndef MUSTER_COMMON_SECURITY_PINNED_AUTHORITY_H_
#define MUSTER_COMMON_SECURITY_PINNED_AUTHORITY_H_

#include <string>

#include "absl/status/statusor.h"

namespace muster::security {

// The certificate (PEM), among those that the server at `target` (HOST:PORT) presents, of the
// authority whose public key has the pin (see PinOf). Sends nothing to the server but a handshake.
// The caller must verify the server with the result, as with any CA certificate. Errors:
// INVALID_ARGUMENT for a malformed target or pin; UNAVAILABLE if the server does not answer in TLS;
// UNAUTHENTICATED if no certificate has the pin. Blocks for a few seconds at most.
absl::StatusOr<std::string> FetchPinnedAuthority(const std::string& target, const std::string& pin);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_PINNED_AUTHORITY_H_
