// Writes checkpoints on a thread of its own while the training continues.
#ifndef MUSTER_TRAINER_LOOP_CHECKPOINT_WRITER_H_
#define MUSTER_TRAINER_LOOP_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "common/time/steady_cond_var.h"
#include "trainer/checkpoint/checkpoint_files.h"

namespace muster::train {

// One per rank that writes a checkpoint or a part of one; at most one write at a time. All methods
// are called by the training thread.
class CheckpointWriter {
 public:
  // Runs on the writer's thread. Reports the bytes written regularly.
  using Write = std::function<absl::Status(const ByteProgress& progress)>;

  struct Result {
    uint64_t step = 0;
    absl::Status status;
    absl::Duration duration;
  };

  CheckpointWriter() = default;
  // Waits for the write in flight.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Starts to write the checkpoint of `step`; must not be busy. What `write` refers to must not
  // change until it is done.
  void Start(uint64_t step, Write write);
  // Whether a write is in flight, or its result has not been taken.
  bool busy() const { return thread_.joinable(); }
  // Result of the write once it is done; empty before, and after it was taken.
  std::optional<Result> TakeResult();
  // Waits until the write is done or, if that takes longer, until `interval` has passed and more
  // bytes have been written since the previous call. Returns at once if not busy.
  void AwaitProgress(absl::Duration interval);
  // Returns the bytes that the write in flight has written.
  uint64_t written_bytes() const;

 private:
  std::thread thread_;
  mutable absl::Mutex mutex_;
  SteadyCondVar changed_;  // done_ or written_bytes_
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t written_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t awaited_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // value at the last AwaitProgress
  Result result_ ABSL_GUARDED_BY(mutex_);
};

// Collective. Waits until no rank's writer is busy. `poll` must take the writer's result once there
// is one; it is called regularly, and if it fails, its error is returned, which the other ranks
// learn of when this rank leaves the group.
//
// The ranks take part in a series of small all-reduces, one per `interval` in which every busy
// writer makes progress. A write may therefore last longer than the group's timeout, but a rank
// whose write makes no progress for that time is named as in any other collective.
absl::Status AwaitAllWriters(collectives::Communicator& world, CheckpointWriter& writer,
                             absl::Duration interval, absl::FunctionRef<absl::Status()> poll);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_CHECKPOINT_WRITER_H_
