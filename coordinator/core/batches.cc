#include "coordinator/core/batches.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

// The writes in a staged record, which has a few bytes more.
constexpr size_t kStagedBytes = kBatchBytes - 4096;
constexpr size_t kBytesPerStagedWrite = 16;  // tags and lengths, at most

using Writes = std::map<std::string, std::optional<std::string>>;

size_t BytesOf(const std::string& key, const std::optional<std::string>& value) {
  return key.size() + (value.has_value() ? value->size() : 0);
}

class BatchBuilder {
 public:
  bool HasRoom(size_t operations, size_t bytes) const {
    return open_.size() + operations <= kBatchOperations && bytes_ + bytes <= kBatchBytes;
  }
  // Adds the write to the open batch, or to a new one if that is full.
  void Add(std::string key, std::optional<std::string> value) {
    const size_t bytes = BytesOf(key, value);
    if (!HasRoom(1, bytes)) Close();
    bytes_ += bytes;
    open_[std::move(key)] = std::move(value);
  }
  void Close() {
    if (open_.empty()) return;
    std::vector<store::Mutation>& batch = batches_.emplace_back();
    for (auto& [key, value] : open_) batch.push_back({key, std::move(value)});
    open_.clear();
    bytes_ = 0;
  }
  std::vector<std::vector<store::Mutation>> Take() {
    Close();
    return std::move(batches_);
  }

 private:
  std::vector<std::vector<store::Mutation>> batches_;
  Writes open_;
  size_t bytes_ = 0;
};

// Adds the batches of a step that is too large for one.
void AddStaged(Writes step, BatchBuilder& batches) {
  v1::CommitRecord commit;
  CHECK(commit.ParseFromString(*step.extract(kCommitKey).mapped()));
  std::vector<std::string> leftovers;  // staged records, which are deleted last
  for (const auto& [key, value] : step) {
    if (absl::StartsWith(key, kStagedPrefix)) leftovers.push_back(key);
  }
  for (const std::string& key : leftovers) step.erase(key);
  batches.Close();
  uint32_t count = 0;
  v1::StagedRecord staged;
  size_t bytes = 0;
  const auto stage = [&] {
    leftovers.push_back(StagedKey(commit.index(), count++));
    batches.Add(leftovers.back(), staged.SerializeAsString());
    batches.Close();
    staged.Clear();
    bytes = 0;
  };
  for (const auto& [key, value] : step) {
    const size_t added = BytesOf(key, value) + kBytesPerStagedWrite;
    if (bytes > 0 && bytes + added > kStagedBytes) stage();
    bytes += added;
    v1::StagedRecord::Write& write = *staged.add_writes();
    write.set_key(key);
    if (value.has_value()) write.set_value(*value);
  }
  stage();
  commit.set_staged(count);
  batches.Add(kCommitKey, commit.SerializeAsString());
  batches.Close();
  for (auto& [key, value] : step) batches.Add(key, std::move(value));
  batches.Close();
  commit.clear_staged();
  batches.Add(kCommitKey, commit.SerializeAsString());
  batches.Close();
  for (std::string& key : leftovers) batches.Add(std::move(key), std::nullopt);
  batches.Close();
}

}  // namespace

std::vector<std::vector<store::Mutation>> SplitIntoBatches(std::vector<store::Mutation> writes) {
  BatchBuilder batches;
  Writes step;
  size_t bytes = 0;
  for (store::Mutation& write : writes) {
    bytes += BytesOf(write.key, write.value);
    const bool ends = write.key == kCommitKey;
    step[std::move(write.key)] = std::move(write.value);
    if (!ends) continue;
    if (step.size() > kBatchOperations || bytes > kBatchBytes) {
      AddStaged(std::move(step), batches);
    } else {
      if (!batches.HasRoom(step.size(), bytes)) batches.Close();
      for (auto& [key, value] : step) batches.Add(key, std::move(value));
    }
    step.clear();
    bytes = 0;
  }
  CHECK(step.empty()) << "writes after the last commit record";
  return batches.Take();
}

absl::Status CommitInBatches(store::Store& store, std::vector<store::Mutation> writes) {
  const std::vector<std::vector<store::Mutation>> batches = SplitIntoBatches(std::move(writes));
  for (size_t i = 0; i < batches.size(); ++i) {
    const bool last = i + 1 == batches.size();
    RETURN_IF_ERROR(last ? store.Commit(batches[i]) : store.CommitUnsynced(batches[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Unstaged> Unstage(absl::Span<const store::Record> stored) {
  Unstaged result;
  const auto is_staged = [](const store::Record& record) {
    return absl::StartsWith(record.key, kStagedPrefix);
  };
  if (std::none_of(stored.begin(), stored.end(), is_staged)) {
    result.records.assign(stored.begin(), stored.end());
    return result;
  }
  std::map<std::string, std::string> records, staged;
  v1::CommitRecord commit;
  for (const store::Record& record : stored) {
    (is_staged(record) ? staged : records)[record.key] = record.value;
    if (record.key == kCommitKey) RETURN_IF_ERROR(ParseRecord(record, commit));
  }
  for (uint32_t i = 0; i < commit.staged(); ++i) {
    const std::string key = StagedKey(commit.index(), i);
    const auto found = staged.find(key);
    if (found == staged.end()) {
      return absl::DataLossError(absl::StrCat("record ", key, " is missing"));
    }
    v1::StagedRecord writes;
    RETURN_IF_ERROR(ParseRecord({key, found->second}, writes));
    for (const v1::StagedRecord::Write& write : writes.writes()) {
      records.erase(write.key());
      if (write.has_value()) records[write.key()] = write.value();
      result.writes.push_back(
          {write.key(), write.has_value() ? std::make_optional(write.value()) : std::nullopt});
    }
  }
  if (commit.staged() > 0) {
    commit.clear_staged();
    records[kCommitKey] = commit.SerializeAsString();
  }
  for (const auto& [key, value] : staged) result.writes.push_back({key, std::nullopt});
  for (auto& [key, value] : records) result.records.push_back({key, std::move(value)});
  return result;
}

}  // namespace muster::core
