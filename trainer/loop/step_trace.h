// Records the phases and a sample of the steps of a rank, for `muster trace`.
#ifndef MUSTER_TRAINER_LOOP_STEP_TRACE_H_
#define MUSTER_TRAINER_LOOP_STEP_TRACE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/time/time.h"
#include "trainer/strategy/step_statistics.h"

namespace muster::train {

// Writes a file of JSON lines, whose size is bounded: phases, and windows of consecutive steps. The
// time between windows grows with the age of the generation, so that a long training is covered
// evenly on a logarithmic scale. A thread of its own writes, so that the training never waits for
// the disk; a file that cannot be written ends the trace, not the training.
//
// Not thread-safe.
class StepTrace {
 public:
  // Of the sampled steps, and of the phases.
  static constexpr int kWindowSteps = 16;
  static constexpr int kMaxWindows = 160;
  static constexpr int kMaxPhases = 512;
  // Files of this many generations are kept.
  static constexpr uint64_t kGenerations = 4;
  // Relative to the rank's working directory; cli/trace reads it.
  static constexpr char kFolder[] = ".muster-trace";

  // Creates the file of this generation below `directory` and removes old ones. `synchronous`:
  // StepTimes::kernels is the time of the computation, not only that of launching it.
  StepTrace(const std::string& directory, uint64_t generation, absl::string_view node,
            uint32_t rank, bool synchronous, const Time& now);
  // Waits a moment for the writer.
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Does nothing if `phase` is the current one.
  void SetPhase(absl::string_view phase, const Time& now);
  // Adds a step that has ended `now`, if it belongs to a window.
  void AddStep(uint64_t completed_steps, const StepTimes& times, const Time& now) {
    if (now.steady >= next_window_) Record(completed_steps, times, now);
  }

 private:
  static constexpr absl::Duration kShortestPause = absl::Seconds(1);
  static constexpr int kPauseDivisor = 10;  // of the generation's age

  void Record(uint64_t completed_steps, const StepTimes& times, const Time& now);
  // Passes the buffered lines to the writer.
  void Write();

  class Writer;
  const bool synchronous_;
  const SteadyTime start_;
  std::shared_ptr<Writer> writer_;  // null if the file could not be created
  SteadyTime next_window_;
  int steps_in_window_ = 0;
  int windows_ = 0;
  int phases_ = 0;
  std::string phase_;
  std::string lines_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_STEP_TRACE_H_
