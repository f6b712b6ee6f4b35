#include "coordinator/service/auth/first_join_token.h"

#include <glog/logging.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/security/private_file.h"
#include "common/status.h"

namespace muster::service {

absl::Status TakeFirstJoinToken(const std::string& path, CoreLoop& loop,
                                PendingRequests& requests) {
  if (path.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> text = security::ReadPrivateFile(path);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return Annotate(text.status(), "--first-join-token");
  const std::vector<std::string> words =
      absl::StrSplit(absl::StripAsciiWhitespace(*text), ' ', absl::SkipEmpty());
  core::CreateJoinToken event;
  int64_t expire_seconds = 0;
  if (words.size() != 4 || !absl::SimpleAtoi(words[2], &expire_seconds) ||
      !absl::SimpleAtoi(words[3], &event.uses)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--first-join-token: ", path, " is not a file of muster cluster init"));
  }
  event.id = words[0];
  event.digest = words[1];
  event.expire_time = absl::FromUnixSeconds(expire_seconds);
  event.actor = {"cluster init", /*is_admin=*/true};
  event.request = requests.Add([path](core::Reply reply) {
    // The token is in the store. If the file cannot be deleted, the next start stores it again.
    if (reply.job.ok() && unlink(path.c_str()) != 0) {
      LOG(WARNING) << "cannot delete " << path << ", which the coordinator no longer needs";
    }
  });
  loop.Push(std::move(event));
  return absl::OkStatus();
}

}  // namespace muster::service
