// Reads the progress that a command reports, as lines appended to the file at MUSTER_PROGRESS.
#ifndef MUSTER_WORKER_AGENT_RANK_PROGRESS_FILE_H_
#define MUSTER_WORKER_AGENT_RANK_PROGRESS_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::agent {

// Applies `line`, words of the form KEY=VALUE with the keys step, total_steps, epoch, loss,
// learning_rate, images_per_second, samples, test_accuracy and phase. Unknown keys and invalid
// values are ignored, because the file is written by the user's program. Returns true if any word
// was applied.
bool ApplyProgressLine(absl::string_view line, v1::Progress& progress);

// Follows a progress file by polling. Not thread-safe.
class ProgressFile {
 public:
  explicit ProgressFile(std::string path) : path_(std::move(path)) {}

  // Returns the progress after all lines so far, or nothing if no line was added since the previous
  // call. If the file grew by very much, only its newest lines are read. `now` is used for the time
  // of the first step and the time left.
  std::optional<v1::Progress> Read(absl::Time now);

 private:
  std::string NewBytes();
  void Date(absl::Time now);

  const std::string path_;
  uint64_t offset_ = 0;
  std::string partial_line_;
  bool skipping_ = false;  // inside a line that is too long
  v1::Progress progress_;
  // The first observed step, for the estimate of the time left.
  absl::Time first_seen_ = absl::InfinitePast();
  uint64_t first_step_ = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_PROGRESS_FILE_H_
