// Reports training progress at a limited cost.
#ifndef MUSTER_TRAINER_LOOP_PROGRESS_H_
#define MUSTER_TRAINER_LOOP_PROGRESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/strategy/step_statistics.h"

namespace muster::train {

using ProgressSink = std::function<void(const v1::Progress&)>;

// Not thread-safe; used by the training thread. Callers pass in the current time.
class ProgressReporter {
 public:
  explicit ProgressReporter(ProgressSink sink);

  // Fields that the methods below do not set; sent with the next report.
  v1::Progress& progress() { return progress_; }

  // Sets the phase and sends a report at once.
  void SetPhase(const std::string& phase);
  // Sets the counter of the phase's work, in `unit`, and sends a report. SetPhase clears it.
  void SetPhaseProgress(uint64_t done, absl::string_view unit);
  // The same for work of `total` that has taken `elapsed`; its rest counts in the time left.
  void SetPhaseProgress(uint64_t done, uint64_t total, absl::string_view unit,
                        absl::Duration elapsed);
  // Called after each step, with progress().step() and progress().samples() set. Sends every step,
  // so that the position of each rank is known if the world hangs; updates rates and medians five
  // times per second.
  void StepDone(const StepStatistics& statistics, const Time& now);
  void Send();

 private:
  void Measure(const StepStatistics& statistics, const Time& now);

  static constexpr absl::Duration kInterval = absl::Milliseconds(200);
  // Window of rates and medians.
  static constexpr absl::Duration kWindow = absl::Seconds(5);
  static constexpr size_t kMedianSteps = 200;

  const ProgressSink sink_;
  v1::Progress progress_;
  absl::Duration phase_left_;  // infinite if it is unknown
  SteadyTime last_measured_;
  std::deque<std::pair<SteadyTime, uint64_t>> samples_;  // earlier measurements, oldest first
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_PROGRESS_H_
