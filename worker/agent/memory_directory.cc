#include "worker/agent/memory_directory.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

bool ChangedAfter(const fs::path& directory, absl::Time time) {
  struct stat status = {};
  return stat(directory.c_str(), &status) == 0 && absl::TimeFromTimespec(status.st_mtim) > time;
}

}  // namespace

std::string MemoryDirectory(absl::string_view parent, absl::string_view data_directory) {
  if (parent.empty()) return "";
  std::error_code error;
  const fs::path path = fs::weakly_canonical(std::string(data_directory), error);
  Sha256 hasher;
  hasher.Update(path.string());
  return absl::StrCat(parent, "/muster-", hasher.HexDigest().substr(0, 16));
}

std::string MemoryDirectoryOf(absl::string_view directory, absl::string_view job_id) {
  return directory.empty() ? "" : absl::StrCat(directory, "/", job_id);
}

void SweepMemoryDirectory(const std::string& directory,
                          const std::set<std::pair<std::string, uint64_t>>& live,
                          absl::Time before) {
  if (directory.empty()) return;
  std::error_code error;
  for (const fs::directory_entry& job : fs::directory_iterator(directory, error)) {
    const std::string id = job.path().filename().string();
    const auto next = live.lower_bound({id, 0});
    const bool is_live = next != live.end() && next->first == id;
    std::error_code ignored;
    if (!is_live && !ChangedAfter(job.path(), before)) fs::remove_all(job.path(), ignored);
  }
  fs::remove(directory, error);  // fails unless it is empty
}

}  // namespace muster::agent
