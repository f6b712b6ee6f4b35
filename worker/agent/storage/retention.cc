#include "worker/agent/storage/retention.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"
#include "spec/units.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

constexpr char kGenerationPrefix[] = "generation-";

struct Usage {
  absl::Time changed = absl::InfinitePast();  // the newest change
  uint64_t bytes = 0;
};

void Count(const fs::path& path, Usage& usage) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) return;
  usage.changed = std::max(usage.changed, absl::TimeFromTimespec(status.st_mtim));
  if (!S_ISREG(status.st_mode)) return;
  // Dropped parts of logs are holes, which occupy no disk space.
  constexpr off_t kBlockBytes = 512;
  usage.bytes +=
      static_cast<uint64_t>(std::min<off_t>(status.st_size, status.st_blocks * kBlockBytes));
}

Usage UsageOf(const fs::path& root) {
  Usage usage;
  Count(root, usage);
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    Count(it->path(), usage);
  }
  return usage;
}

bool Delete(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  LOG_IF(WARNING, error) << "cannot delete " << path << ": " << error.message();
  return !error;
}

std::vector<fs::path> Entries(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  return entries;
}

struct Logs {
  fs::path path;
  Usage usage;
};

// The logs of finished generations.
std::vector<Logs> FinishedLogs(const fs::path& jobs,
                               const std::set<std::pair<std::string, uint64_t>>& live) {
  std::vector<Logs> found;
  for (const fs::path& job : Entries(jobs)) {
    const std::string job_id = job.filename().string();
    if (!CheckJobId(job_id).ok()) continue;
    for (const fs::path& path : Entries(job / "logs")) {
      const std::string name = path.filename().string();
      uint64_t generation = 0;
      if (!absl::StartsWith(name, kGenerationPrefix) ||
          !absl::SimpleAtoi(absl::StripPrefix(name, kGenerationPrefix), &generation) ||
          live.count({job_id, generation}) > 0) {
        continue;
      }
      found.push_back({path, UsageOf(path)});
    }
  }
  return found;
}

// Whether the job has neither logs nor generations, and its directories have not changed since
// `before`. A job without directories is only just being launched.
bool IsAbandoned(const fs::path& job, absl::Time before) {
  if (!Entries(job / "logs").empty()) return false;
  for (const fs::path& entry : Entries(job)) {
    if (absl::StartsWith(entry.filename().string(), kGenerationPrefix)) return false;
  }
  // The time of the job's own directory does not count: deleting the logs changed it.
  Usage usage;
  for (const char* kept : {"work", "checkpoint"}) {
    usage.changed = std::max(usage.changed, UsageOf(job / kept).changed);
  }
  return usage.changed > absl::InfinitePast() && usage.changed <= before;
}

}  // namespace

std::string Retention::Text() const {
  const int64_t days = age / absl::Hours(24);
  return absl::StrCat(age == days * absl::Hours(24) && days > 0
                          ? absl::StrCat(days, days == 1 ? " day" : " days")
                          : spec::DurationText(age),
                      " and ", spec::SizeText(bytes));
}

SweepResult Sweep(const std::string& jobs_directory, const Retention& retention,
                  const std::set<std::pair<std::string, uint64_t>>& live, absl::Time now) {
  SweepResult swept;
  std::vector<Logs> logs = FinishedLogs(jobs_directory, live);
  std::sort(logs.begin(), logs.end(),
            [](const Logs& a, const Logs& b) { return a.usage.changed < b.usage.changed; });
  uint64_t total_bytes = 0;
  for (const Logs& one : logs) total_bytes += one.usage.bytes;
  const absl::Time before = now - retention.age;
  for (const Logs& one : logs) {
    if (one.usage.changed > before && total_bytes <= retention.bytes) break;
    total_bytes -= one.usage.bytes;
    if (!Delete(one.path)) continue;
    ++swept.generations;
    swept.log_bytes += one.usage.bytes;
  }
  for (const fs::path& job : Entries(jobs_directory)) {
    const std::string job_id = job.filename().string();
    const auto next = live.lower_bound({job_id, 0});
    const bool is_live = next != live.end() && next->first == job_id;
    if (!is_live && CheckJobId(job_id).ok() && IsAbandoned(job, before) && Delete(job)) {
      ++swept.jobs;
    }
  }
  return swept;
}

}  // namespace muster::agent
