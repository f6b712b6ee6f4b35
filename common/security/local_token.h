// The token of a coordinator's own user: drawn by the coordinator, found by the same user's CLI and
// worker on the same machine through the coordinator's address.
//
// It lies in DIR/ADDRESS:PORT, mode 0600, in a directory of mode 0700 that both sides find without
// agreeing on an environment: $MUSTER_TOKEN_DIR where it is set, else .muster/tokens/HOSTNAME in
// the home directory that the user database names, else (no such directory, or none that can be
// written) /tmp/muster-UID/tokens. ADDRESS is numeric; whatever name a client calls the coordinator
// by, it is resolved first. The coordinator holds a lock on the file for as long as it lives: a
// file that is not locked was left by a dead one and counts for nothing, so that its token is not
// sent to whoever took the port.
#ifndef MUSTER_COMMON_SECURITY_LOCAL_TOKEN_H_
#define MUSTER_COMMON_SECURITY_LOCAL_TOKEN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/private_file.h"

namespace muster::security {

// 256 random bits as hexadecimal digits.
std::string NewToken();

// The token in the file, made when there is none.
absl::StatusOr<std::string> KeepToken(const std::string& path);

// The first line of the file that is neither empty nor a comment (#), without what surrounds it.
// Errors: those of ReadPrivateFile; INVALID_ARGUMENT when there is none.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// Published while it lives.
class PublishedToken {
 public:
  PublishedToken() = default;
  // `address` is HOST:PORT, as listened on. Files of dead coordinators beside it are removed.
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
// NOT_FOUND says where it was looked for.
absl::StatusOr<FoundToken> FindLocalToken(const std::string& target);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_LOCAL_TOKEN_H_
