#include "trainer/loop/checkpoint_writer.h"

#include <utility>

#include "common/status.h"
#include "common/time/deadline.h"
#include "common/time/now.h"

namespace muster::train {

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::Start(uint64_t step, Write write) {
  {
    absl::MutexLock lock(&mutex_);
    done_ = false;
    written_bytes_ = awaited_bytes_ = 0;
  }
  thread_ = std::thread([this, step, write = std::move(write)] {
    const SteadyTime begin = SteadyNow();
    absl::Status status = write([this](uint64_t bytes) {
      absl::MutexLock lock(&mutex_);
      written_bytes_ += bytes;
      changed_.Signal();
    });
    absl::MutexLock lock(&mutex_);
    result_ = {step, std::move(status), SteadyNow() - begin};
    done_ = true;
    changed_.Signal();
  });
}

std::optional<CheckpointWriter::Result> CheckpointWriter::TakeResult() {
  if (!busy()) return std::nullopt;
  {
    absl::MutexLock lock(&mutex_);
    if (!done_) return std::nullopt;
  }
  thread_.join();
  absl::MutexLock lock(&mutex_);
  return std::move(result_);
}

void CheckpointWriter::AwaitProgress(absl::Duration interval) {
  if (!busy()) return;
  const Deadline deadline(interval);
  absl::MutexLock lock(&mutex_);
  while (!done_ && !deadline.passed()) changed_.WaitUntil(&mutex_, deadline);
  while (!done_ && written_bytes_ == awaited_bytes_) changed_.Wait(&mutex_);
  awaited_bytes_ = written_bytes_;
}

uint64_t CheckpointWriter::written_bytes() const {
  absl::MutexLock lock(&mutex_);
  return written_bytes_;
}

absl::Status AwaitAllWriters(collectives::Communicator& world, CheckpointWriter& writer,
                             absl::Duration interval, absl::FunctionRef<absl::Status()> poll) {
  int32_t writing = 0;
  do {
    writer.AwaitProgress(interval);
    RETURN_IF_ERROR(poll());
    writing = writer.busy() ? 1 : 0;
    RETURN_IF_ERROR(world
                        .AllReduce(&writing, &writing, 1, collectives::DataType::kInt32,
                                   collectives::ReduceOp::kSum)
                        ->Wait());
  } while (writing > 0);
  return absl::OkStatus();
}

}  // namespace muster::train
