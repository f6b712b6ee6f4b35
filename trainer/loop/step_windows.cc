#include "trainer/loop/step_windows.h"

#include <utility>

#include "common/limits.h"

namespace muster::train {
namespace {

// The first steps of a generation fill caches and start threads, which takes the ranks different
// times.
constexpr uint32_t kWarmupSteps = 10;

float SecondsPerStep(absl::Duration total, uint32_t steps) {
  return static_cast<float>(absl::ToDoubleSeconds(total) / steps);
}

}  // namespace

StepWindowRecorder::StepWindowRecorder(uint32_t stage, bool synchronous)
    : synchronous_(synchronous), warmup_left_(kWarmupSteps) {
  windows_.set_stage(stage);
}

void StepWindowRecorder::SetLength(uint32_t steps) {
  if (std::exchange(length_, steps) != steps) Discard();
}

bool StepWindowRecorder::Add(uint64_t completed_steps, uint32_t samples, const StepTimes& times) {
  if (warmup_left_ > 0) {
    --warmup_left_;
    return false;
  }
  if (length_ == 0) return false;
  ++sums_.steps;
  sums_.samples += samples;
  sums_.times.step += times.step;
  sums_.times.data_wait += times.data_wait;
  sums_.times.kernels += times.kernels;
  if (sums_.steps < length_) return false;
  auto& windows = *windows_.mutable_windows();
  if (windows.size() == limits::kStepWindows) windows.DeleteSubrange(0, 1);
  v1::StepWindow& window = *windows.Add();
  window.set_last_step(completed_steps);
  window.set_steps(sums_.steps);
  if (synchronous_) window.set_compute_seconds(SecondsPerStep(sums_.times.kernels, sums_.steps));
  window.set_input_seconds(SecondsPerStep(sums_.times.data_wait, sums_.steps));
  window.set_step_seconds(SecondsPerStep(sums_.times.step, sums_.steps));
  window.set_samples(static_cast<float>(sums_.samples) / static_cast<float>(sums_.steps));
  Discard();
  return true;
}

}  // namespace muster::train
