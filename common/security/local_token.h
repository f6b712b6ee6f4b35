// The local token: created by the coordinator and found, through the coordinator's address, by the
// CLI and workers of the same user on the same machine.
//
// The token is in DIR/ADDRESS:PORT (mode 0600). DIR (mode 0700) is $MUSTER_TOKEN_DIR if set,
// otherwise .muster/tokens/HOSTNAME in the home directory from the user database, otherwise (no
// home directory, or not writable) /tmp/muster-UID/tokens. ADDRESS is numeric: clients resolve the
// coordinator's host name first. The coordinator holds a lock on the file while it runs. A file
// that is not locked was left by a dead coordinator and is ignored, so that its token is never sent
// to another process that has taken the port.
#ifndef MUSTER_COMMON_SECURITY_LOCAL_TOKEN_H_
#define MUSTER_COMMON_SECURITY_LOCAL_TOKEN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/private_file.h"

namespace muster::security {

// A new token: 256 random bits as hexadecimal digits.
std::string NewToken();

// Reads the token in the file, or creates the file with a new token if it does not exist.
absl::StatusOr<std::string> KeepToken(const std::string& path);

// The first line of the file that is neither empty nor a comment (#), without surrounding white
// space. Errors: those of ReadPrivateFile; INVALID_ARGUMENT if the file contains no token.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// A token that clients on this machine can find during the lifetime of this object.
class PublishedToken {
 public:
  PublishedToken() = default;
  // `address` is the HOST:PORT that the coordinator listens on. Removes the
  // token files that dead coordinators left in the directory, and no other files.
  static absl::StatusOr<PublishedToken> Publish(const std::string& address,
                                                const std::string& token);
  ~PublishedToken();
  PublishedToken(PublishedToken&&) = default;
  PublishedToken& operator=(PublishedToken&&) = default;

  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::vector<std::string> paths_;
  std::vector<OwnedFd> files_;
};

struct FoundToken {
  std::string token;
  std::string path;
};

// The token of the coordinator at `target` (HOST:PORT), if it runs on this machine as this user.
// NOT_FOUND names the directories that were searched.
absl::StatusOr<FoundToken> FindLocalToken(const std::string& target);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_LOCAL_TOKEN_H_
