// Makes keys and certificates in a folder, and keeps those that are there.
#ifndef MUSTER_CLI_IDENTITY_CREDENTIALS_H_
#define MUSTER_CLI_IDENTITY_CREDENTIALS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/authority.h"

namespace muster::cli {

inline constexpr absl::Duration kAuthorityValidity = absl::Hours(24 * 3650);
inline constexpr absl::Duration kCertificateValidity = absl::Hours(24 * 365);

// How a file was handled.
enum class Made { kCreated, kKept };

struct MadeAuthority {
  security::Authority authority;
  Made made;
};

// The authority in FOLDER/ca.key and FOLDER/ca.pem; a new one if neither exists.
absl::StatusOr<MadeAuthority> MakeAuthority(const std::string& folder, absl::Time now);

// Keeps FOLDER/NAME.key or makes it. Returns the private key.
absl::StatusOr<std::string> MakeKey(const std::string& folder, const std::string& name);

// Makes FOLDER/NAME.key, FOLDER/NAME.pem and FOLDER/ca.pem, all private for a client. Keeps a
// certificate that names all hosts of `subject`. Errors: ALREADY_EXISTS if it is of another
// authority.
absl::StatusOr<Made> MakeCertificate(const std::string& folder, const std::string& name,
                                     const security::Authority& authority,
                                     const security::CertificateSubject& subject, absl::Time now);

// The token of `user` in a file of tokens (ROLE TOKEN NAME), to which it is added if it is not
// there.
absl::StatusOr<std::string> MakeToken(const std::string& tokens_file, const std::string& role,
                                      const std::string& user);

}  // namespace muster::cli

#endif  // MUSTER_CLI_IDENTITY_CREDENTIALS_H_
