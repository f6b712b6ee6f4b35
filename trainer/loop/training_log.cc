#include "trainer/loop/training_log.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace muster::train {
namespace {

// Epochs that are shorter share a line.
constexpr absl::Duration kShortestInterval = absl::Milliseconds(100);
constexpr absl::Duration kLongestInterval = absl::Minutes(1);
// A rank that waits for its loader for more than this share of a window stalls.
constexpr absl::Duration kStallWindow = absl::Seconds(30);
constexpr double kStallShare = 0.1;

std::string Seconds(absl::Duration duration) {
  return absl::StrFormat("%.2f s", absl::ToDoubleSeconds(duration));
}

}  // namespace

void WriteToLog(LogSeverity severity, const std::string& line) {
  if (severity == LogSeverity::kInfo) {
    LOG(INFO) << line;
  } else {
    LOG(WARNING) << line;
  }
}

TrainingLog::TrainingLog(bool is_first, const data::StepMap& steps, uint64_t total_steps,
                         LogSink sink)
    : is_first_(is_first), steps_(steps), total_steps_(total_steps), sink_(std::move(sink)) {}

void TrainingLog::Info(const std::string& line) {
  if (is_first_) sink_(LogSeverity::kInfo, line);
}

std::string TrainingLog::Position(uint64_t steps) const {
  const auto epochs = [this](uint64_t step) {
    return std::round(100.0 * step / steps_.steps_per_epoch()) / 100;
  };
  return absl::StrFormat("epoch %g/%g, step %d/%d", epochs(steps), epochs(total_steps_), steps,
                         total_steps_);
}

void TrainingLog::Started(uint64_t step, SteadyTime now) {
  Info(absl::StrCat(step == 0 ? "training starts: " : "training resumes: ", Position(step), ", ",
                    steps_.steps_per_epoch(), " steps of ", steps_.global_batch(),
                    " samples per epoch"));
  since_ = window_start_ = now;
  since_step_ = step;
}

void TrainingLog::StepDone(absl::Duration data_wait, SteadyTime now) {
  window_wait_ += data_wait;
  const absl::Duration window = now - window_start_;
  if (window < kStallWindow) return;
  if (window_wait_ > kStallShare * window) {
    sink_(LogSeverity::kWarning,
          absl::StrCat("waited ", Seconds(window_wait_), " of the last ", Seconds(window),
                       " for the data loader; raise loader.threads or loader.prefetch"));
  }
  window_start_ = now;
  window_wait_ = absl::ZeroDuration();
}

void TrainingLog::OnResult(const StepResult& result, const LossScaleState* loss_scale,
                           SteadyTime now) {
  const uint64_t steps = result.step + 1;
  if (result.skipped && is_first_) {
    sink_(LogSeverity::kWarning,
          absl::StrFormat("step %d was skipped because the loss or a gradient overflowed; loss "
                          "scale is now %g, %d steps skipped in total",
                          steps, loss_scale == nullptr ? 1 : loss_scale->scale,
                          loss_scale == nullptr ? 0 : loss_scale->skipped_steps));
  }
  if (!result.skipped) {
    ++results_;
    losses_ += result.loss;
    accuracies_ += result.accuracy;
  }
  const absl::Duration interval = now - since_;
  const bool epoch_ended = steps % steps_.steps_per_epoch() == 0 && interval >= kShortestInterval;
  if (epoch_ended || steps == total_steps_ || interval >= kLongestInterval) LogMeans(steps, now);
}

void TrainingLog::LogMeans(uint64_t steps, SteadyTime now) {
  std::string line = Position(steps);
  if (results_ > 0) {
    absl::StrAppendFormat(&line, ": loss %.4f, accuracy %.4f", losses_ / results_,
                          accuracies_ / results_);
  }
  const double seconds = absl::ToDoubleSeconds(now - since_ - not_training_);
  const uint64_t samples = steps_.SamplesBefore(steps) - steps_.SamplesBefore(since_step_);
  if (seconds > 0) absl::StrAppendFormat(&line, ", %.0f images/s", samples / seconds);
  Info(line);
  since_ = now;
  since_step_ = steps;
  results_ = 0;
  losses_ = accuracies_ = 0;
  not_training_ = absl::ZeroDuration();
}

void TrainingLog::Evaluated(uint64_t step, const Evaluation& evaluation, absl::Duration duration) {
  not_training_ += duration;
  Info(absl::StrFormat("evaluation after step %d: test accuracy %.4f, test loss %.4f, took %s",
                       step, evaluation.accuracy, evaluation.loss, Seconds(duration)));
}

void TrainingLog::CheckpointSaved(uint64_t step, const std::string& path, absl::Duration duration,
                                  absl::Duration stall) {
  not_training_ += stall;
  Info(absl::StrFormat("checkpoint of step %d written to %s in %s, training stalled for %d ms",
                       step, path, Seconds(duration), absl::ToInt64Milliseconds(stall)));
}

void TrainingLog::CheckpointFailed(uint64_t step, const absl::Status& status) {
  sink_(LogSeverity::kWarning,
        absl::StrCat("checkpoint of step ", step, " could not be written: ", status.message()));
}

void TrainingLog::StateLeft(const MemoryCheckpoint& state, const absl::StatusOr<bool>& written,
                            absl::Duration duration) {
  const std::string part =
      state.parts > 1 ? absl::StrCat("part ", state.part + 1, " of ", state.parts, " of ") : "";
  if (!written.ok()) {
    sink_(LogSeverity::kWarning, absl::StrCat(part, "the state of step ", state.step,
                                              " could not be kept in memory, so that steps since "
                                              "the last checkpoint are lost: ",
                                              written.status().message()));
  } else if (*written) {
    sink_(LogSeverity::kInfo,
          absl::StrCat("kept ", part, "the state of step ", state.step, " in memory in ",
                       Seconds(duration), " for the next generation"));
  }
}

}  // namespace muster::train
