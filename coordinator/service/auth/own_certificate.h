// Renews the coordinator's own certificate.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_OWN_CERTIFICATE_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_OWN_CERTIFICATE_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/authority.h"
#include "common/security/tls.h"

namespace muster::service {

// Checks at the start that clients with a pin can find the authority in the certificate file.
// Errors: INVALID_ARGUMENT.
absl::Status CheckChain(const security::TlsFiles& tls, const security::Authority& authority);

// If a third of its validity or less is left, replaces the certificate in `tls` by one for the same
// key and names; the gRPC server notices. Returns whether it did. Errors: those of the files.
absl::StatusOr<bool> RenewOwnCertificate(const security::TlsFiles& tls,
                                         const security::Authority& authority, absl::Time now);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_OWN_CERTIFICATE_H_
