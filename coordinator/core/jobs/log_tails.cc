#include "coordinator/core/jobs/log_tails.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

constexpr size_t kNoticeBytes = 512;

bool IsWithinLimits(const v1::LogChunk& chunk) {
  return chunk.data().size() <= limits::kLogTailBytes &&
         chunk.lines_size() <= static_cast<int>(limits::kLogTailLines) &&
         chunk.notice().size() <= kNoticeBytes;
}

}  // namespace

absl::Status LogTails::Add(const Job& job, v1::LogTail tail) {
  const auto is_old = [&job](uint64_t generation) {
    return generation + limits::kLogTailGenerations <= job.status.generation();
  };
  const Key key{job.queue_sequence, tail.generation(), tail.rank()};
  if (is_old(key.generation) || tails_.count(key) != 0) return absl::OkStatus();
  if (!IsWithinLimits(tail.stdout_end()) || !IsWithinLimits(tail.stderr_end())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the end of its log exceeds ", limits::kLogTailBytes, " bytes or ", limits::kLogTailLines,
        " lines, or its notice ", kNoticeBytes, " bytes; dropped"));
  }
  if (context_.space.IsLow()) {
    return absl::ResourceExhaustedError(
        "the end of its log is on its node only: the disk of the coordinator's store is nearly "
        "full");
  }
  const auto used = generation_bytes_.find({key.job, key.generation});
  const size_t used_bytes = used == generation_bytes_.end() ? 0 : used->second;
  if (used_bytes + tail.ByteSizeLong() > limits::kLogTailBytesPerGeneration) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the end of its log is on its node only: the coordinator keeps ",
                     limits::kLogTailBytesPerGeneration, " bytes of logs per generation"));
  }
  context_.effects.writes.push_back(PutLogTail(tail));
  Restore(job, std::move(tail));
  // Ends at the new tail at the latest.
  auto oldest = tails_.lower_bound({key.job, 0, 0});
  while (is_old(oldest->first.generation)) Delete(oldest++);
  while (bytes_ > limits::kLogTailBytesInTotal) Delete(tails_.begin());
  return absl::OkStatus();
}

void LogTails::Restore(const Job& job, v1::LogTail tail) {
  const Key key{job.queue_sequence, tail.generation(), tail.rank()};
  generation_bytes_[{key.job, key.generation}] += tail.ByteSizeLong();
  bytes_ += tail.ByteSizeLong();
  tails_[key] = std::move(tail);
}

const v1::LogTail* LogTails::Find(const Job& job, Generation generation, Rank rank) const {
  const auto found = tails_.find({job.queue_sequence, generation.value(), rank.value()});
  return found == tails_.end() ? nullptr : &found->second;
}

std::vector<std::string> LogTails::Remove(const Job& job) {
  std::vector<std::string> keys;
  for (auto entry = tails_.lower_bound({job.queue_sequence, 0, 0});
       entry != tails_.end() && entry->first.job == job.queue_sequence;) {
    keys.push_back(Erase(entry++));
  }
  return keys;
}

std::string LogTails::Erase(Tails::iterator entry) {
  const auto& [key, tail] = *entry;
  bytes_ -= tail.ByteSizeLong();
  const auto used = generation_bytes_.find({key.job, key.generation});
  used->second -= tail.ByteSizeLong();
  if (used->second == 0) generation_bytes_.erase(used);
  std::string record = LogTailKey(tail.job_id(), key.generation, key.rank);
  tails_.erase(entry);
  return record;
}

void LogTails::Delete(Tails::iterator entry) {
  context_.effects.writes.push_back({Erase(entry), std::nullopt});
}

}  // namespace muster::core
