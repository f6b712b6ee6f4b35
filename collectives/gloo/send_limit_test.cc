// gloo with a limited send rate (GroupOptions.send_limit).
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "collectives/factory.h"
#include "collectives/testing.h"
#include "collectives/token_bucket.h"
#include "common/status.h"
#include "common/time/now.h"
#include "gtest/gtest.h"

namespace muster::collectives {
namespace {

class SendLimitTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Communicator>> Create(uint32_t rank, TokenBucket* limit) {
    GroupOptions options;
    options.name = "WORLD";
    options.id = "send-limit";
    options.rank = rank;
    options.size = 2;
    options.members = {0, 1};
    options.store = &store_;
    options.interface_address = "127.0.0.1";
    options.send_limit = limit;
    return CreateCommunicator("gloo", options);
  }

  FileKeyStore store_;
};

TEST_F(SendLimitTest, AllReduceDurationMatchesLimit) {
  constexpr size_t kElements = 1 << 18;  // each rank sends as many bytes as it reduces: 1 MiB
  constexpr double kSeconds = 0.2;
  const std::vector<std::string> results = RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
    TokenBucket limit(0, 0);
    ASSIGN_OR_RETURN(const auto communicator, Create(rank, &limit));
    limit.SetRate(kElements * sizeof(float) / kSeconds, SteadyNow());
    std::vector<float> data(kElements, rank == 0 ? 1.0f : 2.0f);
    const absl::Time start = absl::Now();
    RETURN_IF_ERROR(
        communicator
            ->AllReduce(data.data(), data.data(), kElements, DataType::kFloat32, ReduceOp::kSum)
            ->Wait());
    const absl::Duration time = absl::Now() - start;
    if (time < absl::Seconds(kSeconds * 0.99)) return absl::InternalError(FormatDuration(time));
    const bool right = std::all_of(data.begin(), data.end(), [](float x) { return x == 3; });
    return right ? absl::OkStatus() : absl::InternalError("wrong sums");
  });
  for (const std::string& result : results) EXPECT_EQ(result, "");
}

TEST_F(SendLimitTest, AbortEndsWaitForSendLimit) {
  const std::vector<std::string> results = RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
    TokenBucket limit(0, 0);
    ASSIGN_OR_RETURN(const auto communicator, Create(rank, &limit));
    limit.SetRate(1, SteadyNow());  // a byte per second: effectively forever
    std::vector<float> data(1 << 18);
    const auto work = communicator->AllReduce(data.data(), data.data(), data.size(),
                                              DataType::kFloat32, ReduceOp::kSum);
    const absl::Time start = absl::Now();
    communicator->Abort(absl::AbortedError("enough"));
    const absl::Status status = work->Wait();
    if (absl::Now() - start > absl::Seconds(2)) return absl::InternalError("took too long");
    return absl::StrContains(status.message(), "enough") ? absl::OkStatus() : status;
  });
  for (const std::string& result : results) EXPECT_EQ(result, "");
}

}  // namespace
}  // namespace muster::collectives
