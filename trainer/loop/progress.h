// Tells how a training goes, often enough to watch and seldom enough to cost nothing.
#ifndef MUSTER_TRAINER_LOOP_PROGRESS_H_
#define MUSTER_TRAINER_LOOP_PROGRESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/time.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/strategy/step_statistics.h"

namespace muster::train {

using ProgressSink = std::function<void(const v1::Progress&)>;

// Not thread-safe: belongs to the training thread. Time comes in with each call.
class ProgressReporter {
 public:
  explicit ProgressReporter(ProgressSink sink);

  // Fields that change rarely, or that the callers below do not set; sent with the next report.
  v1::Progress& progress() { return progress_; }

  // Sends at once.
  void SetPhase(const std::string& phase);
  // After each step, with progress().step() and progress().samples() set. Sends every step, so that
  // of a world that hangs it is known where each rank stood; rates and medians are new five times a
  // second.
  void StepDone(const StepStatistics& statistics, const Time& now);

 private:
  void Measure(const StepStatistics& statistics, const Time& now);
  void Send();

  static constexpr absl::Duration kInterval = absl::Milliseconds(200);
  // Rates and medians are over the last few seconds.
  static constexpr absl::Duration kWindow = absl::Seconds(5);
  static constexpr size_t kMedianSteps = 200;

  const ProgressSink sink_;
  v1::Progress progress_;
  SteadyTime last_measured_;
  std::deque<std::pair<SteadyTime, uint64_t>> samples_;  // at earlier reports, oldest first
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_PROGRESS_H_
