#include "coordinator/core/jobs/checkpoint_paths.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace muster::core {
namespace {

constexpr absl::string_view kNode = "{node}";

// The absolute path in one spelling. Of a checkpoint (DIR/step-…) or a file of one, DIR.
std::string DirectoryOf(absl::string_view path) {
  std::vector<absl::string_view> folders;
  for (const absl::string_view folder : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (folder == ".." && !folders.empty()) folders.pop_back();
    if (folder != "." && folder != "..") folders.push_back(folder);
  }
  for (size_t last = 1; last <= std::min<size_t>(2, folders.size()); ++last) {
    if (!absl::StartsWith(folders[folders.size() - last], "step-")) continue;
    folders.resize(folders.size() - last);
    break;
  }
  return absl::StrCat("/", absl::StrJoin(folders, "/"));
}

// Whether both name the same directory; `{node}` in one of them matches the name of any node.
bool IsSame(absl::string_view a, absl::string_view b) {
  if (a == b) return true;
  if (!absl::StrContains(a, kNode)) std::swap(a, b);
  const size_t at = a.find(kNode);
  if (at == a.npos) return false;
  const absl::string_view before = a.substr(0, at);
  const absl::string_view after = a.substr(at + kNode.size());
  return b.size() > before.size() + after.size() && absl::StartsWith(b, before) &&
         absl::EndsWith(b, after) &&
         !absl::StrContains(b.substr(at, b.size() - before.size() - after.size()), '/');
}

}  // namespace

void CheckpointPaths::AddPath(const char* field, const std::string& path, bool writes) {
  if (!path.empty()) paths_.emplace(DirectoryOf(path), Use{.field = field, .writes = writes});
}

void CheckpointPaths::Add(const v1::JobSpec& spec) {
  // The first use of a path counts, so that paths that are written come first.
  AddPath("checkpoint_dir", spec.checkpoint_dir(), /*writes=*/true);
  AddPath("train.checkpoint.dir", spec.train().checkpoint().dir(), /*writes=*/true);
  AddPath("train.checkpoint.resume_from", spec.train().checkpoint().resume_from(),
          /*writes=*/false);
  AddPath("train.init_from", spec.train().init_from(), /*writes=*/false);
}

void CheckpointPaths::Meet(const v1::Job& job, const Actor& actor) {
  const bool may_use = MayUse(job, actor);
  for (const std::string* dir : {&job.checkpoint().dir(), &job.spec().checkpoint_dir(),
                                 &job.spec().train().checkpoint().dir()}) {
    if (dir->empty()) continue;
    const std::string normal = DirectoryOf(*dir);
    for (auto& [path, use] : paths_) {
      if (!IsSame(path, normal)) continue;
      use.allowed |= may_use || (job.shared() && !use.writes);
      use.job = job.job_id();
      use.owner = job.owner();
    }
  }
}

absl::Status CheckpointPaths::Check() const {
  for (const auto& [path, use] : paths_) {
    if (use.allowed || use.job.empty()) continue;
    return absl::PermissionDeniedError(absl::StrCat(
        use.field, ": ", path, " has the checkpoints of job ", use.job, " of ", use.owner,
        use.writes
            ? "; use another directory"
            : absl::StrCat("; ask an administrator to share them: muster admin share ", use.job)));
  }
  return absl::OkStatus();
}

}  // namespace muster::core
