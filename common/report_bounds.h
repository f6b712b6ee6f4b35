// What a rank says of itself, within the bounds of common/limits.h: checked by its worker, so that
// a rank hears of it and its node's session does not end for it, and by the coordinator.
#ifndef MUSTER_COMMON_REPORT_BOUNDS_H_
#define MUSTER_COMMON_REPORT_BOUNDS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster {

// INVALID_ARGUMENT with the field, its size and the bound; or with the time, where it is none.
absl::Status CheckBounds(const v1::JoinInfo& join);
absl::Status CheckBounds(const v1::Progress& progress);
absl::Status CheckBounds(const v1::FailureReport& failure);
absl::Status CheckBounds(const v1::TrainSummary& summary);

// What these are made of.
absl::Status CheckLength(absl::string_view what, size_t length, size_t bound);
absl::Status CheckCount(absl::string_view what, int count, size_t bound);
absl::Status CheckTime(absl::string_view what, const google::protobuf::Timestamp& time);
absl::Status CheckTime(absl::string_view what, const google::protobuf::Duration& duration);

}  // namespace muster

#endif  // MUSTER_COMMON_REPORT_BOUNDS_H_
