#include "trainer/checkpoint/sharded_checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "glog/logging.h"
#include "trainer/checkpoint/finite.h"
#include "trainer/checkpoint/part_file.h"
#include "trainer/data/durable_file.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kLongestPollInterval = absl::Milliseconds(500);

std::string PartPath(const ShardedAttempt& attempt, uint32_t index) {
  return absl::StrFormat("%s/part-%05d.json", attempt.folder, index + 1);
}

// Returns e.g. "model-00001-of-00002.safetensors" for "model.safetensors".
std::string ShardName(const std::string& file, uint32_t index, uint32_t parts) {
  const size_t dot = file.find('.');
  return absl::StrFormat("%s-%05d-of-%05d%s", file.substr(0, dot), index + 1, parts,
                         file.substr(dot));
}

uint64_t SizeBytes(const Tensor& tensor) {
  return std::visit([](const auto& values) { return values.size() * sizeof(values[0]); },
                    tensor.values);
}

absl::Status WriteShards(const ShardedAttempt& attempt, uint32_t index, const PartTensors& tensors,
                         const ByteProgress& progress, PartFile& part) {
  std::error_code error;
  fs::create_directory(attempt.folder, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("create ", attempt.folder));
  const std::pair<const char*, absl::Span<const Tensor>> files[] = {
      {kModelFile, tensors.model},
      {kOptimizerFile, tensors.optimizer},
      {kAverageFile, tensors.average}};
  for (const auto& [file, contents] : files) {
    if (contents.empty()) continue;
    RETURN_IF_ERROR(CheckFinite(file, contents));
    const std::string name = ShardName(file, index, attempt.parts);
    Manifest written;
    RETURN_IF_ERROR(WriteTensors(attempt.folder, name, contents, progress, written));
    Shard& shard = part.shards[file];
    shard.name = name;
    shard.entry = written[name];
    for (const Tensor& tensor : contents) {
      shard.tensors.push_back(tensor.name);
      shard.tensor_bytes += SizeBytes(tensor);
    }
  }
  return absl::OkStatus();
}

void RemoveShards(const ShardedAttempt& attempt, uint32_t index) {
  for (const char* const file : {kModelFile, kOptimizerFile, kAverageFile}) {
    std::error_code error;
    fs::remove(absl::StrCat(attempt.folder, "/", ShardName(file, index, attempt.parts)), error);
  }
}

// The part file is renamed, so that it is complete when it appears.
absl::Status ReportPart(const ShardedAttempt& attempt, uint32_t index, const PartFile& part) {
  const std::string path = PartPath(attempt, index);
  const std::string temporary = path + ".tmp";
  ASSIGN_OR_RETURN(auto file, data::DurableFile::Create(temporary));
  RETURN_IF_ERROR(file->Append(FormatPartFile(part)));
  RETURN_IF_ERROR(file->Close());
  return data::RenameDurably(temporary, path);
}

// Reports a failure without its error. An empty file needs no space on the disk.
absl::Status ReportFailure(const ShardedAttempt& attempt, uint32_t index) {
  ASSIGN_OR_RETURN(const auto file, data::DurableFile::Create(PartPath(attempt, index)));
  return file->Close();
}

// Reads the part files of an attempt as they appear.
class PartCollector {
 public:
  explicit PartCollector(const ShardedAttempt& attempt)
      : attempt_(attempt), parts_(attempt.parts) {}

  // Reads new part files. Returns whether all parts are written, or the error that a rank reported.
  absl::StatusOr<bool> Read() {
    List();
    bool complete = true;
    for (uint32_t index = 0; index < parts_.size(); ++index) {
      std::optional<PartFile>& part = parts_[index];
      if (!part.has_value()) part = ReadOne(index);
      if (!part.has_value()) {
        complete = false;
      } else if (!part->error.ok()) {
        return Annotate(part->error, absl::StrCat("part ", index + 1, " of ", attempt_.parts));
      }
    }
    return complete;
  }

  // Bytes by which the files have grown since the previous call, at least 1 per new file.
  uint64_t TakeGrowth() { return std::exchange(growth_, 0); }

  std::string Missing() const {
    std::vector<uint32_t> missing;
    for (uint32_t index = 0; index < parts_.size(); ++index) {
      if (!parts_[index].has_value()) missing.push_back(index + 1);
    }
    return absl::StrJoin(missing, ", ");
  }

  const std::vector<std::optional<PartFile>>& parts() const { return parts_; }

 private:
  // Lists the folder, which refreshes the caches of a network file system.
  void List() {
    std::error_code error;
    for (fs::directory_iterator it(attempt_.folder, error), end; !error && it != end;
         it.increment(error)) {
      std::error_code removed;
      const uintmax_t size = it->file_size(removed);
      const auto [known, added] = sizes_.emplace(it->path().filename().string(), 0);
      if (added) ++growth_;
      if (removed || size <= known->second) continue;
      growth_ += size - known->second;
      known->second = size;
    }
  }

  // Empty if the part has not been reported in this attempt.
  std::optional<PartFile> ReadOne(uint32_t index) const {
    const std::string path = PartPath(attempt_, index);
    const auto found = sizes_.find(fs::path(path).filename().string());
    if (found == sizes_.end()) return std::nullopt;
    if (found->second == 0) {
      PartFile failed;
      failed.error = absl::UnknownError("cannot be written; see the log of its rank");
      return failed;
    }
    absl::StatusOr<PartFile> part = ReadPartFile(path);
    if (!part.ok()) {
      LOG_EVERY_N(WARNING, 100) << part.status().message();
      return std::nullopt;
    }
    if (part->attempt != attempt_.id) return std::nullopt;
    return *std::move(part);
  }

  const ShardedAttempt& attempt_;
  std::vector<std::optional<PartFile>> parts_;
  std::map<std::string, uintmax_t> sizes_;  // largest, by file name
  uint64_t growth_ = 0;
};

absl::Status AwaitParts(const ShardedAttempt& attempt, const PartWait& wait,
                        PartCollector& collector) {
  SteadyTime last_progress = Now().steady;
  absl::Duration interval = wait.poll_interval;
  for (bool first = true;; first = false) {
    ASSIGN_OR_RETURN(const bool complete, collector.Read());
    if (complete) return absl::OkStatus();
    RETURN_IF_ERROR(wait.check());
    if (const uint64_t growth = collector.TakeGrowth(); growth > 0) {
      last_progress = Now().steady;
      // The files of this rank have been reported by WritePart.
      if (wait.progress && !first) wait.progress(growth);
    } else if (Now().steady - last_progress >= wait.timeout) {
      return absl::DeadlineExceededError(
          absl::StrCat("parts ", collector.Missing(), " of ", attempt.parts, " are missing in ",
                       attempt.folder, " after ", absl::FormatDuration(wait.timeout),
                       " without progress; see the logs of the ranks that write them"));
    }
    absl::SleepFor(interval);
    interval = std::min(2 * interval, kLongestPollInterval);
  }
}

// Adds the shards of all parts to the manifest and writes their index files.
absl::Status WriteIndexes(const ShardedAttempt& attempt,
                          const std::vector<std::optional<PartFile>>& parts, Manifest& manifest) {
  // Every checkpoint has the first two.
  std::map<std::string, TensorIndex> indexes = {{kModelFile, {}}, {kOptimizerFile, {}}};
  for (const std::optional<PartFile>& part : parts) {
    for (const auto& [file, shard] : part->shards) {
      TensorIndex& index = indexes[file];
      index.total_bytes += shard.tensor_bytes;
      for (const std::string& tensor : shard.tensors) {
        const auto [known, added] = index.file_of.emplace(tensor, shard.name);
        if (!added) {
          return absl::InternalError(
              absl::StrCat("tensor ", tensor, " is in ", known->second, " and in ", shard.name));
        }
      }
      manifest[shard.name] = shard.entry;
    }
  }
  for (const auto& [file, index] : indexes) {
    RETURN_IF_ERROR(WriteIndex(attempt.folder, file, index, manifest));
  }
  return absl::OkStatus();
}

// Waits for all parts and writes the other files of the checkpoint.
absl::Status CompleteFolder(const CheckpointState& state, const ShardedAttempt& attempt,
                            const PartWait& wait) {
  PartCollector collector(attempt);
  RETURN_IF_ERROR(AwaitParts(attempt, wait, collector));
  Manifest manifest;
  RETURN_IF_ERROR(WriteIndexes(attempt, collector.parts(), manifest));
  RETURN_IF_ERROR(WriteState(attempt.folder, state, manifest));
  RETURN_IF_ERROR(WriteManifest(attempt.folder, manifest));
  for (uint32_t index = 0; index < attempt.parts; ++index) {
    std::error_code error;
    fs::remove(PartPath(attempt, index), error);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WritePart(const ShardedAttempt& attempt, uint32_t index, const PartTensors& tensors,
                       const ByteProgress& progress) {
  PartFile part;
  part.attempt = attempt.id;
  absl::Status status = WriteShards(attempt, index, tensors, progress, part);
  if (status.ok()) status = ReportPart(attempt, index, part);
  if (status.ok()) return status;
  RemoveShards(attempt, index);
  part.shards.clear();
  part.error = status;
  LOG(ERROR) << "cannot write part " << index + 1 << " of a checkpoint: " << status.message();
  absl::Status reported = ReportPart(attempt, index, part);
  if (!reported.ok()) reported = ReportFailure(attempt, index);
  LOG_IF(ERROR, !reported.ok()) << "cannot report this: " << reported.message();
  return status;
}

absl::StatusOr<CheckpointRef> PublishParts(const CheckpointDirectory& directory,
                                           const CheckpointState& state,
                                           const ShardedAttempt& attempt, const PartWait& wait) {
  const absl::Status completed = CompleteFolder(state, attempt, wait);
  if (!completed.ok()) {
    directory.Discard(state.step);
    return Annotate(directory.Explain(completed), "write checkpoint");
  }
  return directory.Publish(state.step);
}

}  // namespace muster::train
