#include "worker/agent/lease/lease_witness.h"

#include <utility>

#include "absl/status/status.h"
#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

constexpr char kAddress[] = "ipv4:10.0.0.1:7070";
constexpr absl::Duration kFresh = absl::Seconds(2);
const SteadyTime kStart(absl::Hours(7));

class LeaseWitnessTest : public ::testing::Test {
 protected:
  LeaseWitnessTest() {
    v1::FenceSet set;
    set.set_id(1);
    set.add_nodes("b");
    EXPECT_TRUE(promises_.SetFenceSet(set).ok());
    keeper_.OnAcknowledged(kStart);
  }

  static LeaseKeeper::Outside MakeKeeperOutside() {
    LeaseKeeper::Outside outside;
    outside.held = [] { return std::vector<LeaseKeeper::Lease>(); };
    return outside;
  }
  LeaseWitness::Outside MakeOutside() {
    LeaseWitness::Outside outside;
    outside.now = [this] { return now_; };
    outside.address = [] { return kAddress; };
    outside.forward = [this](const v1::LeaseQuestion&) { ++forwarded_; };
    outside.probe = [this](std::function<void(std::optional<SteadyTime>)> done) {
      probed_ = std::move(done);
    };
    outside.answer = [this](uint64_t, v1::PeerAnswer answer) { answer_ = std::move(answer); };
    return outside;
  }
  void AskAfter(absl::Duration time, const std::string& address = kAddress) {
    now_ = kStart + time;
    v1::LeaseQuestion question;
    question.set_node_name("x");
    question.set_coordinator_address(address);
    v1::LeasedGeneration& asked = *question.add_generations();
    asked.set_job_id("job");
    asked.set_generation(1);
    *asked.mutable_lease() = ToProto(absl::Seconds(30));
    witness_.Ask(question, kFresh);
  }

  SteadyTime now_ = kStart;
  int forwarded_ = 0;
  std::function<void(std::optional<SteadyTime>)> probed_;
  v1::PeerAnswer answer_;
  Promises promises_{v1::PromiseRecord(), "boot", kStart,
                     [](const v1::PromiseRecord&) { return absl::OkStatus(); }};
  LeaseKeeper keeper_{"b", MakeKeeperOutside(), kStart};
  LeaseWitness witness_{"b", MakeOutside(), keeper_, promises_};
};

TEST_F(LeaseWitnessTest, ForwardsWhileTheCoordinatorAcknowledges) {
  AskAfter(absl::Seconds(2));
  EXPECT_EQ(forwarded_, 1);
  AskAfter(absl::Seconds(3));
  EXPECT_EQ(forwarded_, 1);
}

TEST_F(LeaseWitnessTest, ReportsRefusalWithItsAge) {
  AskAfter(absl::Seconds(3));
  now_ = kStart + absl::Seconds(4);
  probed_(kStart + absl::Seconds(3));
  EXPECT_EQ(FromProto(answer_.refused()), absl::Seconds(1));
  EXPECT_EQ(answer_.node_name(), "b");
  EXPECT_TRUE(answer_.vouched().empty());
  EXPECT_EQ(keeper_.newest_evidence(), kStart + absl::Seconds(3)) << "for its own ranks, too";
}

// The coordinator has moved since one of the two was acknowledged.
TEST_F(LeaseWitnessTest, RefusalOfAnotherAddressIsNotReported) {
  AskAfter(absl::Seconds(15), "ipv4:10.0.0.2:7070");
  probed_(now_);
  EXPECT_FALSE(answer_.has_refused());
  EXPECT_TRUE(answer_.vouched().empty());
}

TEST_F(LeaseWitnessTest, VouchesAfterAThirdOfTheLeaseWithoutEvidence) {
  AskAfter(absl::Seconds(9));
  probed_(std::nullopt);
  EXPECT_TRUE(answer_.vouched().empty());
  AskAfter(absl::Seconds(10));
  probed_(std::nullopt);
  EXPECT_EQ(answer_.vouched_size(), 1);
}

}  // namespace
}  // namespace muster::agent
