// Log lines of a training: rank 0 logs its course, every rank logs warnings about itself.
#ifndef MUSTER_TRAINER_LOOP_TRAINING_LOG_H_
#define MUSTER_TRAINER_LOOP_TRAINING_LOG_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/time.h"
#include "trainer/checkpoint/memory_checkpoint.h"
#include "trainer/data/sampler.h"
#include "trainer/strategy/evaluate.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

enum class LogSeverity { kInfo, kWarning };
using LogSink = std::function<void(LogSeverity severity, const std::string& line)>;

// Writes to the process's log.
void WriteToLog(LogSeverity severity, const std::string& line);

// Callers pass in the current time. Used by the training thread.
class TrainingLog {
 public:
  // `is_first`: this is rank 0.
  TrainingLog(bool is_first, const data::StepMap& steps, uint64_t total_steps,
              LogSink sink = WriteToLog);

  // Training begins after `step` steps; more than 0 if it was resumed.
  void Started(uint64_t step, SteadyTime now);
  // Called after each step with the time waited for the loader. Warns of stalls.
  void StepDone(absl::Duration data_wait, SteadyTime now);
  // Called with each step's result, in order; `loss_scale` is null without loss scaling. Logs the
  // means since the last such line at the end of each epoch and after each minute.
  void OnResult(const StepResult& result, const LossScaleState* loss_scale, SteadyTime now);
  // Its duration does not count in images/s.
  void Evaluated(uint64_t step, const Evaluation& evaluation, absl::Duration duration);
  // `stall`: time that the training waited, which does not count in images/s.
  void CheckpointSaved(uint64_t step, const std::string& path, absl::Duration duration,
                       absl::Duration stall);
  void CheckpointFailed(uint64_t step, const absl::Status& status);
  // `written`: result of MemoryCheckpoints::Write. Logged on every rank that has written.
  void StateLeft(const MemoryCheckpoint& state, const absl::StatusOr<bool>& written,
                 absl::Duration duration);

 private:
  void Info(const std::string& line);
  // "epoch 1.28/3, step 300/705".
  std::string Position(uint64_t steps) const;
  void LogMeans(uint64_t steps, SteadyTime now);

  const bool is_first_;
  const data::StepMap steps_;
  const uint64_t total_steps_;
  const LogSink sink_;

  // Since the last line with means.
  SteadyTime since_;
  uint64_t since_step_ = 0;
  uint64_t results_ = 0;
  double losses_ = 0;
  double accuracies_ = 0;
  absl::Duration not_training_;

  SteadyTime window_start_;  // start of the current measurement of stalls
  absl::Duration window_wait_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_TRAINING_LOG_H_
