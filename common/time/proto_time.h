// Conversions between absl times and durations and their protobuf messages.
#ifndef MUSTER_COMMON_TIME_PROTO_TIME_H_
#define MUSTER_COMMON_TIME_PROTO_TIME_H_

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace muster {

inline google::protobuf::Duration ToProto(absl::Duration d) {
  google::protobuf::Duration proto;
  proto.set_seconds(absl::IDivDuration(d, absl::Seconds(1), &d));
  proto.set_nanos(static_cast<int32_t>(absl::IDivDuration(d, absl::Nanoseconds(1), &d)));
  return proto;
}

inline absl::Duration FromProto(const google::protobuf::Duration& proto) {
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

inline google::protobuf::Timestamp ToProto(absl::Time t) {
  google::protobuf::Timestamp proto;
  const int64_t seconds = absl::ToUnixSeconds(t);
  proto.set_seconds(seconds);
  proto.set_nanos(
      static_cast<int32_t>((t - absl::FromUnixSeconds(seconds)) / absl::Nanoseconds(1)));
  return proto;
}

inline absl::Time FromProto(const google::protobuf::Timestamp& proto) {
  return absl::FromUnixSeconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

// Whether the message is in the range that protobuf defines and its JSON conversion requires: years
// 1 to 9999 for timestamps, ±10,000 years for durations.
inline bool IsValid(const google::protobuf::Timestamp& proto) {
  return proto.seconds() >= -62'135'596'800 && proto.seconds() <= 253'402'300'799 &&
         proto.nanos() >= 0 && proto.nanos() <= 999'999'999;
}

inline bool IsValid(const google::protobuf::Duration& proto) {
  const bool signs_agree =
      proto.seconds() == 0 || proto.nanos() == 0 || (proto.seconds() < 0) == (proto.nanos() < 0);
  return proto.seconds() >= -315'576'000'000 && proto.seconds() <= 315'576'000'000 &&
         proto.nanos() >= -999'999'999 && proto.nanos() <= 999'999'999 && signs_agree;
}

}  // namespace muster

#endif  // MUSTER_COMMON_TIME_PROTO_TIME_H_
