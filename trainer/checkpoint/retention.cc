#include "trainer/checkpoint/retention.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace muster::train {
namespace {

constexpr absl::string_view kStepPrefix = "step-";
constexpr absl::string_view kUnfinishedPrefix = ".unfinished-";
constexpr absl::string_view kRemovedPrefix = ".removed-";
constexpr size_t kStepDigits = 8;

// Removes the digits at the start of `text`, at least `min_digits`, and returns their value.
std::optional<uint64_t> ConsumeNumber(absl::string_view& text, size_t min_digits) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  uint64_t value = 0;
  if (digits < min_digits || !absl::SimpleAtoi(text.substr(0, digits), &value)) {
    return std::nullopt;
  }
  text.remove_prefix(digits);
  return value;
}

// Whether the folder is one that the owner may rename or remove.
bool BelongsTo(const Folder& folder, const Owner& owner) {
  return folder.job_id == owner.job_id && folder.generation <= owner.generation;
}

using Age = std::pair<uint64_t, uint64_t>;

Age AgeOf(const Folder& folder) { return {folder.generation, folder.step}; }

}  // namespace

std::optional<FolderName> ParseFolderName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kStepPrefix)) return std::nullopt;
  const auto step = ConsumeNumber(name, kStepDigits);
  if (!step.has_value()) return std::nullopt;
  if (name.empty()) return FolderName{*step};
  if (!absl::ConsumePrefix(&name, ".g")) return std::nullopt;
  const auto generation = ConsumeNumber(name, 1);
  if (!generation.has_value()) return std::nullopt;
  if (!name.empty() && !absl::ConsumePrefix(&name, "-")) return std::nullopt;
  return FolderName{*step, *generation, std::string(name)};
}

std::string FormatFolderName(const FolderName& name) {
  return absl::StrFormat("%s%08d.g%d%s%s", kStepPrefix, name.step, name.generation,
                         name.job_id.empty() ? "" : "-", name.job_id);
}

std::string UnfinishedFolderName(const FolderName& name) {
  return absl::StrCat(kUnfinishedPrefix, FormatFolderName(name));
}

std::string RemovedFolderName(const FolderName& name) {
  return absl::StrCat(kRemovedPrefix, FormatFolderName(name));
}

void SortNewestFirst(std::vector<Folder>& folders, absl::string_view job_id) {
  std::map<std::string, Age> newest;  // by job
  for (const Folder& folder : folders) {
    if (!folder.job_id.has_value()) continue;
    Age& age = newest[*folder.job_id];
    age = std::max(age, AgeOf(folder));
  }
  const auto key = [&](const Folder& folder) {
    const std::string job = folder.job_id.value_or("");
    const uint64_t newest_step = folder.job_id.has_value() ? newest[job].second : 0;
    return std::make_tuple(folder.job_id.has_value(), folder.job_id == job_id, newest_step, job,
                           AgeOf(folder), folder.name);
  };
  std::sort(folders.begin(), folders.end(),
            [&](const Folder& a, const Folder& b) { return key(a) > key(b); });
}

std::optional<uint64_t> NewerGeneration(absl::Span<const Folder> folders, const Owner& owner) {
  uint64_t highest = owner.generation;
  for (const Folder& folder : folders) {
    if (folder.job_id == owner.job_id) highest = std::max(highest, folder.generation);
  }
  if (highest == owner.generation) return std::nullopt;
  return highest;
}

bool MustClaim(const Folder& folder, const Owner& owner) {
  return BelongsTo(folder, owner) && folder.generation < owner.generation;
}

const Folder* BestFolder(absl::Span<const Folder> folders, const Owner& owner,
                         absl::string_view metric) {
  const Folder* best = nullptr;
  std::tuple<double, Age> best_key;
  for (const Folder& folder : folders) {
    std::optional<double> value;
    if (metric == "test_accuracy") value = folder.test_accuracy;
    if (metric == "test_loss" && folder.test_loss.has_value()) value = -*folder.test_loss;
    if (!value.has_value() || std::isnan(*value) || !BelongsTo(folder, owner)) continue;
    const std::tuple<double, Age> key{*value, AgeOf(folder)};
    if (best != nullptr && key <= best_key) continue;
    best = &folder;
    best_key = key;
  }
  return best;
}

std::vector<std::string> FoldersToRemove(absl::Span<const Folder> folders, const Owner& owner,
                                         uint64_t newest_step, const RetentionRules& rules) {
  std::vector<std::string> removed;
  std::vector<Folder> candidates;  // for keeping
  for (const Folder& folder : folders) {
    if (!BelongsTo(folder, owner)) continue;
    if (folder.step <= newest_step) {
      candidates.push_back(folder);
    } else {
      removed.push_back(folder.name);
    }
  }
  SortNewestFirst(candidates, owner.job_id);
  const Folder* const best = BestFolder(candidates, owner, rules.keep_best);
  for (size_t i = std::max(1u, rules.keep); i < candidates.size(); ++i) {
    if (&candidates[i] != best) removed.push_back(candidates[i].name);
  }
  return removed;
}

bool IsLeftover(absl::string_view name, const Owner& owner) {
  if (!absl::ConsumePrefix(&name, kUnfinishedPrefix) &&
      !absl::ConsumePrefix(&name, kRemovedPrefix)) {
    return false;
  }
  const auto parsed = ParseFolderName(name);
  return parsed.has_value() && parsed->job_id == owner.job_id &&
         parsed->generation <= owner.generation;
}

}  // namespace muster::train
