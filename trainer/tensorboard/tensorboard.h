// Scalars by step in TensorBoard's event files.
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

// One writer to a directory at a time. Errors: as errno says, naming the path, with the exit code
// kExitCannotCreate. Not thread-safe.
class TensorBoardWriter {
 public:
  using Scalar = std::pair<const char*, double>;  // tag, value

  // Makes the directory, and in it a file named events.out.tfevents.SECONDS.HOST.PID, which readers
  // take in after all that are there. `first_step` is the first step that will be told; what
  // earlier files say of it and of later ones is void, as after a restart from a checkpoint.
  static absl::StatusOr<std::unique_ptr<TensorBoardWriter>> Create(
      const std::string& directory, uint64_t first_step,
      std::function<absl::Time()> wall_clock = absl::Now);

  // A viewer sees them at once, and they outlive this process however it ends.
  absl::Status AddScalars(uint64_t step, absl::Span<const Scalar> scalars);
  // Waits until the disk has them: they outlive the machine, too.
  absl::Status Flush();

  const std::string& path() const { return file_->path(); }

 private:
  TensorBoardWriter(std::unique_ptr<RecordFile> file, std::function<absl::Time()> wall_clock);
  // Dates it.
  absl::Status Append(tensorboard::Event& event);

  const std::unique_ptr<RecordFile> file_;
  const std::function<absl::Time()> wall_clock_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_TENSORBOARD_TENSORBOARD_H_
