// What a command says of its progress: lines that it appends to the file at MUSTER_PROGRESS.
#ifndef MUSTER_WORKER_AGENT_RANK_PROGRESS_FILE_H_
#define MUSTER_WORKER_AGENT_RANK_PROGRESS_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::agent {

// Takes over what `line` says: words of KEY=VALUE, with the keys step, total_steps, epoch, loss,
// learning_rate, images_per_second, samples, test_accuracy and phase. Unknown keys and values that
// do not parse are passed over, for the file is the program's. True when anything was understood.
bool ApplyProgressLine(absl::string_view line, v1::Progress& progress);

// Follows one such file by reading it now and then. Not thread-safe.
class ProgressFile {
 public:
  explicit ProgressFile(std::string path) : path_(std::move(path)) {}

  // What the lines up to now say together; nothing when none was added since the call before. Only
  // the newest lines of a file that grew by very much are read. `now` dates the first step and what
  // is left.
  std::optional<v1::Progress> Read(absl::Time now);

 private:
  std::string NewBytes();
  void Date(absl::Time now);

  const std::string path_;
  uint64_t offset_ = 0;
  std::string partial_line_;
  bool skipping_ = false;  // within a line that is too long
  v1::Progress progress_;
  // The first step that was seen, to tell the pace from.
  absl::Time first_seen_ = absl::InfinitePast();
  uint64_t first_step_ = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_PROGRESS_FILE_H_
