// Files of identities: keys, certificates and settings, written for daemons that may run as another
// user than the caller.
#ifndef MUSTER_CLI_IDENTITY_IDENTITY_FILES_H_
#define MUSTER_CLI_IDENTITY_IDENTITY_FILES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/authority.h"

namespace muster::cli {

enum class FileMode { kPrivate = 0600, kPublic = 0644 };

// Creates the folder (mode 0700) and its parents, or takes access away from other users if it
// exists. A folder that root creates belongs to the owner of the folder in which it lies. Errors:
// those of security::MakePrivateDirectory.
absl::Status MakeOwnedFolder(const std::string& path);

// Replaces the file atomically. A file that root writes belongs to the owner of the file that it
// replaces or, if there is none, of its folder, which is created if missing.
absl::Status WriteOwnedFile(const std::string& path, absl::string_view text, FileMode mode);

class SettingsFile {
 public:
  // Reads the file; one that does not exist is empty.
  static absl::StatusOr<SettingsFile> Read(std::string path);

  const std::string& path() const { return path_; }
  // The value of a setting; "" if the file does not set it.
  std::string Get(absl::string_view name) const;
  // Sets what the file does not set. Errors: ALREADY_EXISTS if it has another value.
  absl::Status Add(const std::string& name, const std::string& value);
  // Sets a value in place of another one.
  void Replace(const std::string& name, const std::string& value);
  // Writes the file if settings were added, with everything else that was in it. Creates its
  // folder.
  absl::Status Write(FileMode mode = FileMode::kPublic) const;
  bool changed() const { return changed_; }

 private:
  explicit SettingsFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::string text_;
  std::vector<std::pair<std::string, std::string>> settings_;
  bool changed_ = false;
};

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

#endif  // MUSTER_CLI_IDENTITY_IDENTITY_FILES_H_
