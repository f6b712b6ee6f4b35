#include "common/report_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/match.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/text/utf8.h"
#include "common/time/proto_time.h"

namespace muster {
namespace {

// An estimate or a silence of more than ten years is none. The sum of such a duration and a time is
// still a valid time.
constexpr int64_t kLongestSeconds = int64_t{10} * 365 * 24 * 3600;
// JSON readers and TensorBoard use signed integers.
constexpr uint64_t kLargestCount = std::numeric_limits<int64_t>::max();
constexpr int kLastSignal = 64;
constexpr int kLastExitCode = 255;
constexpr int kLastStatusCode = 16;

template <typename Time>
std::string TimeText(const Time& time) {
  return absl::StrCat(time.seconds(), " s, ", time.nanos(), " ns");
}

void Note(absl::string_view field, const std::string& what, Corrections& corrections) {
  corrections.push_back({field, absl::StrCat(field, " ", what)});
}

void DropInvalid(absl::string_view field, const google::protobuf::Timestamp& time,
                 const std::function<void()>& drop, Corrections& corrections) {
  if (IsValid(time)) return;
  Note(field, absl::StrCat("is not a valid time: ", TimeText(time), "; dropped"), corrections);
  drop();
}

// Returns the nearest value of 0..`last`, but never 0 for another value: that would be a success.
int Limit(absl::string_view field, int value, int last, Corrections& corrections) {
  if (value >= 0 && value <= last) return value;
  Note(field, absl::StrCat("is ", value, ", which is not from 0 to ", last, "; set to ", last),
       corrections);
  return last;
}

void Clamp(v1::FailureReport& failure, Corrections& corrections) {
  Truncate("failure.message", limits::kReportedTextBytes, *failure.mutable_message(), corrections);
  Truncate("failure.phase", limits::kLabelBytes, *failure.mutable_phase(), corrections);
  if (failure.code() < 0 || failure.code() > kLastStatusCode) {
    Note("failure.code", absl::StrCat("is ", failure.code(), ", which is no status code"),
         corrections);
    failure.set_code(static_cast<int>(absl::StatusCode::kUnknown));
  }
}

void Clamp(v1::ExitInfo& exit, Corrections& corrections) {
  std::string& tail = *exit.mutable_stderr_tail();
  if (tail.size() > limits::kStderrTailBytes) {
    Note("exit.stderr_tail",
         absl::StrCat("is ", tail.size(), " bytes long; only the last ", limits::kStderrTailBytes,
                      " are kept"),
         corrections);
    KeepLast(limits::kStderrTailBytes, tail);
  }
  exit.set_exit_code(Limit("exit.exit_code", exit.exit_code(), kLastExitCode, corrections));
  exit.set_signal(Limit("exit.signal", exit.signal(), kLastSignal, corrections));
  DropInvalid(
      "exit.time", exit.time(), [&exit] { exit.clear_time(); }, corrections);
  if (exit.has_failure()) Clamp(*exit.mutable_failure(), corrections);
}

void Clamp(v1::JoinInfo& join, Corrections& corrections) {
  Truncate("join.layout_digest", limits::kLabelBytes, *join.mutable_layout_digest(), corrections);
  Truncate("join.checkpoint_path", limits::kReportedTextBytes, *join.mutable_checkpoint_path(),
           corrections);
  Truncate("join.checkpoint_job_id", limits::kLabelBytes, *join.mutable_checkpoint_job_id(),
           corrections);
  KeepEntries("join.fingerprint", limits::kFingerprintEntries, *join.mutable_fingerprint(),
              corrections);
  for (v1::FingerprintEntry& entry : *join.mutable_fingerprint()) {
    Truncate("join.fingerprint", limits::kLabelBytes, *entry.mutable_name(), corrections);
    Truncate("join.fingerprint", limits::kLabelBytes, *entry.mutable_value(), corrections);
  }
}

// Numbers that must be finite and not negative. A loss that is not finite is kept: the training
// diverged.
struct NumberField {
  absl::string_view name;
  double (v1::Progress::*get)() const;
  void (v1::Progress::*set)(double);
};
constexpr NumberField kNumbers[] = {
    {"progress.epoch", &v1::Progress::epoch, &v1::Progress::set_epoch},
    {"progress.learning_rate", &v1::Progress::learning_rate, &v1::Progress::set_learning_rate},
    {"progress.images_per_second", &v1::Progress::images_per_second,
     &v1::Progress::set_images_per_second},
    {"progress.test_accuracy", &v1::Progress::test_accuracy, &v1::Progress::set_test_accuracy},
    {"progress.train_accuracy", &v1::Progress::train_accuracy, &v1::Progress::set_train_accuracy},
    {"progress.loss_scale", &v1::Progress::loss_scale, &v1::Progress::set_loss_scale},
    {"progress.step_seconds", &v1::Progress::step_seconds, &v1::Progress::set_step_seconds},
    {"progress.data_wait_seconds", &v1::Progress::data_wait_seconds,
     &v1::Progress::set_data_wait_seconds},
    {"progress.exposed_communication_seconds", &v1::Progress::exposed_communication_seconds,
     &v1::Progress::set_exposed_communication_seconds},
    {"progress.stall_seconds", &v1::Progress::stall_seconds, &v1::Progress::set_stall_seconds},
    {"progress.checkpoint_stall_seconds", &v1::Progress::checkpoint_stall_seconds,
     &v1::Progress::set_checkpoint_stall_seconds},
};

struct CountField {
  absl::string_view name;
  uint64_t (v1::Progress::*get)() const;
  void (v1::Progress::*set)(uint64_t);
};
constexpr CountField kCounts[] = {
    {"progress.step", &v1::Progress::step, &v1::Progress::set_step},
    {"progress.total_steps", &v1::Progress::total_steps, &v1::Progress::set_total_steps},
    {"progress.samples", &v1::Progress::samples, &v1::Progress::set_samples},
};

bool IsDuration(float seconds) { return std::isfinite(seconds) && seconds >= 0; }

bool IsValid(const v1::StepWindow& window) {
  return window.last_step() <= kLargestCount && window.steps() > 0 &&
         IsDuration(window.compute_seconds()) && IsDuration(window.input_seconds()) &&
         IsDuration(window.step_seconds()) && std::isfinite(window.samples()) &&
         window.samples() >= 0;
}

void Clamp(v1::StepWindows& windows, Corrections& corrections) {
  KeepEntries("progress.step_windows", limits::kStepWindows, *windows.mutable_windows(),
              corrections);
  if (std::all_of(windows.windows().begin(), windows.windows().end(),
                  [](const v1::StepWindow& window) { return IsValid(window); })) {
    return;
  }
  Note("progress.step_windows",
       "has a window without steps, or with a number that is negative or not finite; dropped",
       corrections);
  windows.clear_windows();
}

void Clamp(google::protobuf::RepeatedPtrField<v1::LossAnomaly>& anomalies,
           Corrections& corrections) {
  KeepEntries("progress.loss_anomalies", limits::kLossAnomalies, anomalies, corrections);
  for (v1::LossAnomaly& anomaly : anomalies) {
    if (anomaly.step() <= kLargestCount) continue;
    Note("progress.loss_anomalies",
         absl::StrCat("has the step ", anomaly.step(), "; set to the limit, ", kLargestCount),
         corrections);
    anomaly.set_step(kLargestCount);
  }
}

void Clamp(v1::Progress& progress, Corrections& corrections) {
  Truncate("progress.phase", limits::kLabelBytes, *progress.mutable_phase(), corrections);
  Truncate("progress.phase_unit", limits::kLabelBytes, *progress.mutable_phase_unit(), corrections);
  if (progress.has_precision()) {
    v1::PrecisionInfo& precision = *progress.mutable_precision();
    for (std::string* word : {precision.mutable_level(), precision.mutable_dtype(),
                              precision.mutable_gradient_dtype()}) {
      Truncate("progress.precision", limits::kLabelBytes, *word, corrections);
    }
  }
  if (progress.has_step_windows()) Clamp(*progress.mutable_step_windows(), corrections);
  Clamp(*progress.mutable_loss_anomalies(), corrections);
  for (const NumberField& field : kNumbers) {
    const double value = (progress.*field.get)();
    if (std::isfinite(value) && value >= 0) continue;
    Note(field.name, absl::StrCat("is ", value, "; it must be finite and not negative; dropped"),
         corrections);
    (progress.*field.set)(0);
  }
  for (const CountField& field : kCounts) {
    const uint64_t value = (progress.*field.get)();
    if (value <= kLargestCount) continue;
    Note(field.name, absl::StrCat("is ", value, "; set to the limit, ", kLargestCount),
         corrections);
    (progress.*field.set)(kLargestCount);
  }
  DropInvalid(
      "progress.first_step_time", progress.first_step_time(),
      [&progress] { progress.clear_first_step_time(); }, corrections);
  DropUnlikely(
      "progress.time_left", progress.time_left(), [&progress] { progress.clear_time_left(); },
      corrections);
}

void Clamp(v1::TrainSummary& summary, Corrections& corrections) {
  for (std::string* text : {summary.mutable_checkpoint(), summary.mutable_resumed_from()}) {
    Truncate("summary.checkpoint", limits::kReportedTextBytes, *text, corrections);
  }
  for (std::string* word :
       {summary.mutable_weights_digest(), summary.mutable_precision(), summary.mutable_strategy(),
        summary.mutable_device(), summary.mutable_resumed_job_id()}) {
    Truncate("summary", limits::kLabelBytes, *word, corrections);
  }
  DropInvalid(
      "summary.first_step_time", summary.first_step_time(),
      [&summary] { summary.clear_first_step_time(); }, corrections);
  KeepEntries("summary.devices", limits::kRecordedDevices, *summary.mutable_devices(), corrections);
  for (v1::DeviceUse& use : *summary.mutable_devices()) {
    Truncate("summary.devices", limits::kLabelBytes, *use.mutable_node(), corrections);
    Truncate("summary.devices", limits::kLabelBytes, *use.mutable_device(), corrections);
  }
  KeepEntries("summary.parts", limits::kStepParts, *summary.mutable_parts(), corrections);
  for (v1::StepPart& part : *summary.mutable_parts()) {
    Truncate("summary.parts", limits::kLabelBytes, *part.mutable_name(), corrections);
  }
  KeepEntries("summary.stages", limits::kRecordedDevices, *summary.mutable_stages(), corrections);
  for (v1::StageUse& stage : *summary.mutable_stages()) {
    Truncate("summary.stages", limits::kLabelBytes, *stage.mutable_first_layer(), corrections);
    Truncate("summary.stages", limits::kLabelBytes, *stage.mutable_last_layer(), corrections);
  }
  KeepEntries("summary.evaluations", limits::kRecordedEvaluations, *summary.mutable_evaluations(),
              corrections);
  KeepEntries("summary.losses", limits::kRecordedLosses, *summary.mutable_losses(), corrections);
  KeepEntries("summary.step_end_seconds", limits::kRecordedLosses,
              *summary.mutable_step_end_seconds(), corrections);
}

void Clamp(v1::CheckpointStatus& checkpoint, Corrections& corrections) {
  for (std::string* path : {checkpoint.mutable_dir(), checkpoint.mutable_resumed_from(),
                            checkpoint.mutable_continued_from(), checkpoint.mutable_failure()}) {
    Truncate("checkpoint.dir", limits::kReportedTextBytes, *path, corrections);
  }
  for (std::string* word : {checkpoint.mutable_node(), checkpoint.mutable_resumed_job_id(),
                            checkpoint.mutable_continued_job_id(), checkpoint.mutable_name(),
                            checkpoint.mutable_best_name()}) {
    Truncate("checkpoint.node", limits::kLabelBytes, *word, corrections);
  }
}

bool HasWarningAbout(absl::string_view field, const v1::RankReport& report) {
  return std::any_of(report.warnings().begin(), report.warnings().end(),
                     [field](const std::string& warning) {
                       return absl::StartsWith(warning, absl::StrCat(field, " "));
                     });
}

}  // namespace

Corrections Clamp(v1::RankReport& report) {
  Corrections corrections;
  if (!v1::RankPhase_IsValid(report.phase())) {
    Note("phase", absl::StrCat("is ", report.phase(), ", which is no phase; dropped"), corrections);
    report.clear_phase();
  }
  if (report.has_join()) Clamp(*report.mutable_join(), corrections);
  if (report.has_exit()) Clamp(*report.mutable_exit(), corrections);
  if (report.has_progress()) Clamp(*report.mutable_progress(), corrections);
  if (report.has_failure()) Clamp(*report.mutable_failure(), corrections);
  if (report.has_summary()) Clamp(*report.mutable_summary(), corrections);
  if (report.has_checkpoint()) Clamp(*report.mutable_checkpoint(), corrections);
  if (report.has_lost_output()) {
    Truncate("lost_output.reason", limits::kLabelBytes,
             *report.mutable_lost_output()->mutable_reason(), corrections);
  }
  DropUnlikely(
      "silence", report.silence(), [&report] { report.clear_silence(); }, corrections);
  KeepEntries("warnings", limits::kWarningsPerRank, *report.mutable_warnings(), corrections);
  for (std::string& warning : *report.mutable_warnings()) {
    Truncate("warnings", limits::kWarningBytes, warning, corrections);
  }
  for (const Correction& correction : corrections) {
    if (!HasWarningAbout(correction.field, report)) AddWarning(correction.problem, report);
  }
  return corrections;
}

bool AddWarning(std::string text, v1::RankReport& report) {
  KeepFirst(limits::kWarningBytes, text);
  const auto& warnings = report.warnings();
  if (text.empty() || warnings.size() >= limits::kWarningsPerRank) return false;
  if (std::find(warnings.begin(), warnings.end(), text) != warnings.end()) return false;
  report.add_warnings(std::move(text));
  return true;
}

void Truncate(absl::string_view field, size_t limit_bytes, std::string& text,
              Corrections& corrections) {
  if (text.size() <= limit_bytes) return;
  Note(field,
       absl::StrCat("is ", text.size(), " bytes long; only the first ", limit_bytes, " are kept"),
       corrections);
  KeepFirst(limit_bytes, text);
}

void DropUnlikely(absl::string_view field, const google::protobuf::Duration& duration,
                  const std::function<void()>& drop, Corrections& corrections) {
  const bool positive = duration.seconds() >= 0 && duration.nanos() >= 0;
  if (IsValid(duration) && positive && duration.seconds() <= kLongestSeconds) return;
  Note(field,
       absl::StrCat("is not from 0 to ", kLongestSeconds, " s: ", TimeText(duration), "; dropped"),
       corrections);
  drop();
}

absl::Status CheckLength(absl::string_view what, size_t length, size_t bound) {
  if (length <= bound) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", length, " bytes long; the limit is ", bound));
}

absl::Status CheckCount(absl::string_view what, int count, size_t bound) {
  if (static_cast<size_t>(count) <= bound) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", count, " entries; the limit is ", bound));
}

absl::Status CheckTime(absl::string_view what, const google::protobuf::Duration& duration) {
  if (IsValid(duration)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is not a valid time: ", TimeText(duration)));
}

absl::Status CheckBounds(const v1::LeaseQuestion& question) {
  RETURN_IF_ERROR(CheckLength("node_name", question.node_name().size(), limits::kNameLength));
  RETURN_IF_ERROR(CheckLength("coordinator_address", question.coordinator_address().size(),
                              limits::kLabelBytes));
  RETURN_IF_ERROR(CheckCount("the generations of a question", question.generations_size(),
                             limits::kGenerationsPerNode));
  for (const v1::LeasedGeneration& asked : question.generations()) {
    RETURN_IF_ERROR(CheckLength("job_id", asked.job_id().size(), limits::kLabelBytes));
    RETURN_IF_ERROR(CheckTime("lease", asked.lease()));
  }
  return absl::OkStatus();
}

}  // namespace muster
