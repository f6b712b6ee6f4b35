#include "trainer/loop/progress.h"

#include <string>

#include "common/time/proto_time.h"

namespace muster::train {

ProgressReporter::ProgressReporter(ProgressSink sink) : sink_(std::move(sink)) {}

void ProgressReporter::SetPhase(const std::string& phase) {
  progress_.set_phase(phase);
  progress_.clear_phase_progress();
  progress_.clear_phase_unit();
  progress_.clear_phase_total();
  phase_left_ = absl::ZeroDuration();
  Send();
}

void ProgressReporter::SetPhaseProgress(uint64_t done, absl::string_view unit) {
  progress_.set_phase_progress(done);
  progress_.set_phase_unit(std::string(unit));
  Send();
}

void ProgressReporter::SetPhaseProgress(uint64_t done, uint64_t total, absl::string_view unit,
                                        absl::Duration elapsed) {
  progress_.set_phase_total(total);
  phase_left_ = done == 0 ? absl::InfiniteDuration()
                          : elapsed * (static_cast<double>(total) / static_cast<double>(done) - 1);
  SetPhaseProgress(done, unit);
}

void ProgressReporter::StepDone(const StepStatistics& statistics, const Time& now) {
  const bool first = !progress_.has_first_step_time();
  if (first) *progress_.mutable_first_step_time() = ToProto(now.wall);
  if (first || now.steady - last_measured_ >= kInterval) Measure(statistics, now);
  Send();
}

void ProgressReporter::Measure(const StepStatistics& statistics, const Time& now) {
  last_measured_ = now.steady;
  const StepTimes median = statistics.Median(kMedianSteps);
  progress_.set_step_seconds(absl::ToDoubleSeconds(median.step));
  progress_.set_data_wait_seconds(absl::ToDoubleSeconds(median.data_wait));
  progress_.set_exposed_communication_seconds(absl::ToDoubleSeconds(median.exposed_communication));

  samples_.emplace_back(now.steady, progress_.samples());
  // Keeps one sample from before the window, so that the rate spans the whole window.
  while (samples_.size() > 2 && now.steady - samples_[1].first >= kWindow) samples_.pop_front();
  const double seconds = absl::ToDoubleSeconds(now.steady - samples_.front().first);
  if (seconds > 0) {
    const double done = static_cast<double>(progress_.samples() - samples_.front().second);
    progress_.set_images_per_second(done / seconds);
  }
}

void ProgressReporter::Send() {
  if (progress_.total_steps() >= progress_.step()) {
    const auto steps = static_cast<double>(progress_.total_steps() - progress_.step());
    const absl::Duration left = absl::Seconds(progress_.step_seconds() * steps) + phase_left_;
    const bool known = progress_.step_seconds() > 0 || (steps == 0 && progress_.phase_total() > 0);
    progress_.clear_time_left();
    if (known && left < absl::InfiniteDuration()) *progress_.mutable_time_left() = ToProto(left);
  }
  if (sink_) sink_(progress_);
}

}  // namespace muster::train
