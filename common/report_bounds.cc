#include "common/report_bounds.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/status.h"

namespace muster {
namespace {

template <typename Proto>
absl::Status CheckValid(absl::string_view what, const Proto& time) {
  if (IsValid(time)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is not a valid time: ", time.seconds(), " s, ", time.nanos(), " ns"));
}

}  // namespace

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

absl::Status CheckTime(absl::string_view what, const google::protobuf::Timestamp& time) {
  return CheckValid(what, time);
}

absl::Status CheckTime(absl::string_view what, const google::protobuf::Duration& duration) {
  return CheckValid(what, duration);
}

absl::Status CheckBounds(const v1::JoinInfo& join) {
  RETURN_IF_ERROR(
      CheckLength("join.layout_digest", join.layout_digest().size(), limits::kLabelBytes));
  RETURN_IF_ERROR(CheckLength("join.checkpoint_path", join.checkpoint_path().size(),
                              limits::kReportedTextBytes));
  RETURN_IF_ERROR(
      CheckLength("join.checkpoint_job_id", join.checkpoint_job_id().size(), limits::kLabelBytes));
  RETURN_IF_ERROR(
      CheckCount("join.fingerprint", join.fingerprint_size(), limits::kFingerprintEntries));
  for (const v1::FingerprintEntry& entry : join.fingerprint()) {
    RETURN_IF_ERROR(CheckLength("fingerprint.name", entry.name().size(), limits::kLabelBytes));
    RETURN_IF_ERROR(CheckLength("fingerprint.value", entry.value().size(), limits::kLabelBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckBounds(const v1::Progress& progress) {
  RETURN_IF_ERROR(CheckLength("progress.phase", progress.phase().size(), limits::kLabelBytes));
  const v1::PrecisionInfo& precision = progress.precision();
  for (const std::string* word :
       {&precision.level(), &precision.dtype(), &precision.gradient_dtype()}) {
    RETURN_IF_ERROR(CheckLength("progress.precision", word->size(), limits::kLabelBytes));
  }
  RETURN_IF_ERROR(CheckTime("progress.first_step_time", progress.first_step_time()));
  return CheckTime("progress.time_left", progress.time_left());
}

absl::Status CheckBounds(const v1::FailureReport& failure) {
  RETURN_IF_ERROR(
      CheckLength("failure.message", failure.message().size(), limits::kReportedTextBytes));
  return CheckLength("failure.phase", failure.phase().size(), limits::kLabelBytes);
}

absl::Status CheckBounds(const v1::TrainSummary& summary) {
  RETURN_IF_ERROR(
      CheckLength("summary.checkpoint", summary.checkpoint().size(), limits::kReportedTextBytes));
  RETURN_IF_ERROR(
      CheckLength("summary.weights_digest", summary.weights_digest().size(), limits::kLabelBytes));
  RETURN_IF_ERROR(
      CheckLength("summary.precision", summary.precision().size(), limits::kLabelBytes));
  RETURN_IF_ERROR(CheckTime("summary.first_step_time", summary.first_step_time()));
  RETURN_IF_ERROR(CheckLength("summary.strategy", summary.strategy().size(), limits::kLabelBytes));
  RETURN_IF_ERROR(CheckCount("summary.devices", summary.devices_size(), limits::kRecordedDevices));
  for (const v1::DeviceUse& use : summary.devices()) {
    RETURN_IF_ERROR(CheckLength("summary.devices.node", use.node().size(), limits::kLabelBytes));
    RETURN_IF_ERROR(
        CheckLength("summary.devices.device", use.device().size(), limits::kLabelBytes));
  }
  RETURN_IF_ERROR(CheckCount("summary.parts", summary.parts_size(), limits::kStepParts));
  for (const v1::StepPart& part : summary.parts()) {
    RETURN_IF_ERROR(CheckLength("summary.parts.name", part.name().size(), limits::kLabelBytes));
  }
  RETURN_IF_ERROR(CheckCount("summary.stages", summary.stages_size(), limits::kRecordedDevices));
  for (const v1::StageUse& stage : summary.stages()) {
    RETURN_IF_ERROR(
        CheckLength("summary.stages.first_layer", stage.first_layer().size(), limits::kLabelBytes));
    RETURN_IF_ERROR(
        CheckLength("summary.stages.last_layer", stage.last_layer().size(), limits::kLabelBytes));
  }
  RETURN_IF_ERROR(
      CheckCount("summary.evaluations", summary.evaluations_size(), limits::kRecordedEvaluations));
  return CheckCount("summary.losses", summary.losses_size(), limits::kRecordedLosses);
}

absl::Status CheckBounds(const v1::CheckpointStatus& checkpoint) {
  RETURN_IF_ERROR(
      CheckLength("checkpoint.dir", checkpoint.dir().size(), limits::kReportedTextBytes));
  RETURN_IF_ERROR(CheckLength("checkpoint.node", checkpoint.node().size(), limits::kLabelBytes));
  RETURN_IF_ERROR(CheckLength("checkpoint.resumed_from", checkpoint.resumed_from().size(),
                              limits::kReportedTextBytes));
  return CheckLength("checkpoint.resumed_job_id", checkpoint.resumed_job_id().size(),
                     limits::kLabelBytes);
}

}  // namespace muster
