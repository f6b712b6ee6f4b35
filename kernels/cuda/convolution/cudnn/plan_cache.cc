#include "kernels/cuda/convolution/cudnn/plan_cache.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace muster::kernels::cuda {
namespace {

namespace fs = std::filesystem;

// FNV-1a.
std::string Checksum(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return absl::StrFormat("%016x", hash);
}

std::string Line(absl::string_view operation, absl::string_view plan, absl::string_view day) {
  const std::string content = absl::StrCat(operation, "\t", plan, "\t", day);
  return absl::StrCat(Checksum(content), "\t", content, "\n");
}

std::string FileName(absl::string_view machine) {
  std::string name(machine);
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.') c = '-';
  }
  return absl::StrCat(name, ".plans");
}

}  // namespace

std::string DefaultPlanFolder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return absl::StrCat(cache, "/muster/cuda");
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? absl::StrCat(home, "/.cache/muster/cuda") : "";
}

PlanCache::PlanCache(const std::string& folder, absl::string_view machine, absl::Time now)
    : today_((now - absl::UnixEpoch()) / absl::Hours(24)) {
  if (folder.empty()) return;
  path_ = fs::path(folder) / FileName(machine);
  Read();
}

std::optional<std::string> PlanCache::Find(const std::string& operation) const {
  const auto at = plans_.find(operation);
  if (at == plans_.end()) return std::nullopt;
  return at->second.plan;
}

void PlanCache::Put(const std::string& operation, const std::string& plan) {
  if (!path_.empty()) Read();
  plans_[operation] = {plan, today_};
  if (!path_.empty()) Write();
}

void PlanCache::Read() {
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, '\t');
    int64_t day = 0;
    if (parts.size() != 4 || Line(parts[1], parts[2], parts[3]) != line + "\n" ||
        !absl::SimpleAtoi(parts[3], &day)) {
      continue;
    }
    if (absl::Hours(24) * (today_ - day) < kKept) plans_[parts[1]] = {parts[2], day};
  }
}

void PlanCache::Write() const {
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  const std::string temporary = absl::StrCat(path_, ".", getpid());
  std::ofstream file(temporary, std::ios::trunc);
  for (const auto& [operation, entry] : plans_) {
    file << Line(operation, entry.plan, absl::StrCat(entry.day));
  }
  file.close();
  if (file) {
    fs::rename(temporary, path_, error);
  } else {
    fs::remove(temporary, error);
  }
}

}  // namespace muster::kernels::cuda
