#include <type_traits>

#include "absl/strings/cord.h"
#include "common/grpc/status.h"
#include "common/ids.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "common/time/time.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(IdsTest, KindsDoNotConvertToEachOther) {
  static_assert(!std::is_convertible_v<Rank, Generation>);
  EXPECT_LT(Rank(1), Rank(2));
  EXPECT_EQ(JobId("a"), JobId("a"));
}

TEST(StatusTest, AnnotateKeepsCodeAndPayload) {
  absl::Status status = absl::NotFoundError("x");
  status.SetPayload("url", absl::Cord("p"));
  const absl::Status annotated = Annotate(status, "reading y");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(annotated.message(), "reading y: x");
  EXPECT_EQ(annotated.GetPayload("url"), absl::Cord("p"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "z").ok());
}

TEST(GrpcStatusTest, RoundTrips) {
  const absl::Status status = absl::ResourceExhaustedError("too many");
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  EXPECT_TRUE(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())).ok());
}

TEST(ProtoTimeTest, RoundTripsIncludingNegativeValues) {
  for (const absl::Duration d : {absl::Milliseconds(1500), absl::Milliseconds(-1500),
                                 absl::ZeroDuration(), absl::Nanoseconds(1)}) {
    EXPECT_EQ(FromProto(ToProto(d)), d);
  }
  for (const absl::Time t :
       {absl::UnixEpoch() - absl::Milliseconds(1), absl::FromUnixMillis(1234567)}) {
    EXPECT_EQ(FromProto(ToProto(t)), t);
    EXPECT_GE(ToProto(t).nanos(), 0);
  }
}

TEST(TimeTest, SteadyTimeNeverDecreases) {
  const Time a = Now();
  const Time b = Now();
  EXPECT_LE(a.steady, b.steady);
  EXPECT_EQ((a.steady + absl::Seconds(1)) - a.steady, absl::Seconds(1));
}

}  // namespace
}  // namespace muster
