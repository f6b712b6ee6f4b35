// Checks the messages that a rank reports against common/limits.h. The worker checks them, so that
// the rank receives the error and its node's session continues; the coordinator checks them again.
#ifndef MUSTER_COMMON_REPORT_BOUNDS_H_
#define MUSTER_COMMON_REPORT_BOUNDS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster {

// INVALID_ARGUMENT names the field, its size and the limit, or the invalid time.
absl::Status CheckBounds(const v1::JoinInfo& join);
absl::Status CheckBounds(const v1::Progress& progress);
absl::Status CheckBounds(const v1::FailureReport& failure);
absl::Status CheckBounds(const v1::TrainSummary& summary);
absl::Status CheckBounds(const v1::CheckpointStatus& checkpoint);

// Checks of single fields, which errors call `what`.
absl::Status CheckLength(absl::string_view what, size_t length, size_t bound);
absl::Status CheckCount(absl::string_view what, int count, size_t bound);
absl::Status CheckTime(absl::string_view what, const google::protobuf::Timestamp& time);
absl::Status CheckTime(absl::string_view what, const google::protobuf::Duration& duration);

}  // namespace muster

#endif  // MUSTER_COMMON_REPORT_BOUNDS_H_
