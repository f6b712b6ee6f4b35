// Writes scalars to TensorBoard event files.
#ifndef MUSTER_TRAINER_TENSORBOARD_TENSORBOARD_H_
#define MUSTER_TRAINER_TENSORBOARD_TENSORBOARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/tensorboard/event.pb.h"
#include "trainer/tensorboard/record_file.h"

namespace muster::train {

// Only one writer per directory at a time. Methods return the error of errno with the path and exit
// code kExitCannotCreate. Not thread-safe.
class TensorBoardWriter {
 public:
  using Scalar = std::pair<const char*, double>;  // tag, value

  // Creates the directory and, in it, a file events.out.tfevents.SECONDS.HOST.PID, which readers
  // process after all existing files. `first_step` is the first step that will be written; it
  // invalidates the values of this and later steps in earlier files, e.g. after resuming from a
  // checkpoint.
  static absl::StatusOr<std::unique_ptr<TensorBoardWriter>> Create(
      const std::string& directory, uint64_t first_step,
      std::function<absl::Time()> wall_clock = absl::Now);

  // Writes the scalars of a step. They are visible to readers at once and survive a crash of this
  // process.
  absl::Status AddScalars(uint64_t step, absl::Span<const Scalar> scalars);
  // Syncs the scalars to disk, so that they also survive a crash of the machine.
  absl::Status Flush();

  const std::string& path() const { return file_->path(); }

 private:
  TensorBoardWriter(std::unique_ptr<RecordFile> file, std::function<absl::Time()> wall_clock);
  // Sets the event's wall time and appends it.
  absl::Status Append(tensorboard::Event& event);

  const std::unique_ptr<RecordFile> file_;
  const std::function<absl::Time()> wall_clock_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_TENSORBOARD_TENSORBOARD_H_
