// The progress that a command reports, as lines appended to the file at MUSTER_PROGRESS.
#ifndef MUSTER_WORKER_AGENT_RANK_PROGRESS_FILE_H_
#define MUSTER_WORKER_AGENT_RANK_PROGRESS_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/time/time.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::agent {

// Parses a line of MUSTER_PROGRESS.
struct ProgressLine {
  bool applied = false;  // at least one value was taken
  std::string problem;   // predicate of "line 3", with the remedy; empty: the line is understood
};

// Applies a line of words of the form KEY=VALUE, or a JSON object, with the keys step, total_steps,
// samples, epoch, loss, learning_rate, images_per_second, test_accuracy and phase. Other keys are
// ignored if the line has one of these; so are other words and JSON nulls. A blank line is
// understood. `line` may contain any bytes: the user's program writes it.
ProgressLine ApplyProgressLine(absl::string_view line, v1::Progress& progress);

// Follows a progress file by polling. Not thread-safe.
class ProgressFile {
 public:
  // `uid`: of the file's owner; a file of another user is not read.
  explicit ProgressFile(std::string path, std::optional<uid_t> uid = std::nullopt)
      : path_(std::move(path)), uid_(uid) {}

  // Returns the progress after all lines so far, or nothing if no line was added since the previous
  // call. If the file grew by very much, only its newest lines are read. `now` is used for the time
  // of the first step and the time left.
  std::optional<v1::Progress> Read(Time now);
  // Returns the problem of the first line that was not understood, once; empty if there is none.
  std::string TakeWarning() { return std::exchange(warning_, ""); }

 private:
  std::string NewBytes();
  // Applies the complete line; returns whether it contained progress.
  bool TakeLine();
  void Warn(absl::string_view problem);
  void Date(Time now);
  // Adds the first of a run of losses that are not finite to the progress.
  void NoteLoss();

  const std::string path_;
  const std::optional<uid_t> uid_;
  uint64_t offset_ = 0;
  std::string partial_line_;
  bool skipping_ = false;  // inside a line that is too long
  // Number of the line being read; unknown after a part of the file was skipped.
  std::optional<uint64_t> line_number_ = 1;
  bool warned_ = false;
  std::string warning_;
  v1::Progress progress_;
  bool loss_is_finite_ = true;
  // The first observed step, for the estimate of the time left.
  std::optional<SteadyTime> first_seen_;
  uint64_t first_step_ = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_PROGRESS_FILE_H_
