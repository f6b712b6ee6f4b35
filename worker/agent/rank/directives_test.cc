#include "worker/agent/rank/directives.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace muster::agent {
namespace {

v1::Directive DirectiveOf(v1::Directive::Kind kind) {
  v1::Directive directive;
  directive.set_kind(kind);
  return directive;
}

using Texts = std::vector<std::string>;

class DirectivesTest : public ::testing::Test {
 protected:
  void Watch(CallId id, uint32_t rank) {
    directives_->Watch(
        id, {rank,
             [this, id](const v1::Directive& directive) {
               received_[id].push_back(v1::Directive::Kind_Name(directive.kind()));
             },
             [this, id](const absl::Status& status) {
               received_[id].push_back(std::string(absl::StatusCodeToString(status.code())));
             }});
  }

  std::map<CallId, Texts> received_;
  std::unique_ptr<Directives> directives_ = std::make_unique<Directives>(/*ranks=*/1);
};

TEST_F(DirectivesTest, DirectivesToStopReachPresentAndLaterCallsOnce) {
  Watch(1, 0);
  EXPECT_FALSE(directives_->stopping());
  EXPECT_TRUE(directives_->Stop(DirectiveOf(v1::Directive::STOP)));
  EXPECT_FALSE(directives_->Stop(DirectiveOf(v1::Directive::STOP)));
  EXPECT_FALSE(directives_->aborting());
  EXPECT_TRUE(directives_->Stop(DirectiveOf(v1::Directive::ABORT)));
  EXPECT_TRUE(directives_->aborting());
  Watch(2, 0);
  EXPECT_EQ(received_[1], (Texts{"STOP", "ABORT"}));
  EXPECT_EQ(received_[2], (Texts{"ABORT"}));
}

TEST_F(DirectivesTest, OnlyRankZeroWritesCheckpointsAndNotWhileStopping) {
  Watch(1, 0);
  Watch(2, 1);
  directives_->RequestCheckpoint();
  directives_->Stop(DirectiveOf(v1::Directive::STOP));
  directives_->RequestCheckpoint();
  EXPECT_EQ(received_[1], (Texts{"CHECKPOINT", "STOP"}));
  EXPECT_EQ(received_[2], (Texts{"STOP"}));
}

TEST_F(DirectivesTest, EveryCallEndsOnce) {
  Watch(1, 0);
  directives_->Cancel(1);
  directives_->Cancel(1);
  EXPECT_EQ(received_[1], (Texts{"CANCELLED"}));
  Watch(2, 0);
  directives_->End();
  Watch(3, 0);
  EXPECT_EQ(received_[2], (Texts{"OK"}));
  EXPECT_EQ(received_[3], (Texts{"OK"}));
}

TEST_F(DirectivesTest, CallsEndWithWorker) {
  Watch(1, 0);
  directives_.reset();
  EXPECT_EQ(received_[1], (Texts{"UNAVAILABLE"}));
}

TEST_F(DirectivesTest, LimitsCallsByNumberOfRanks) {
  for (CallId id = 1; id <= 5; ++id) Watch(id, 0);
  EXPECT_EQ(received_[4], Texts());
  EXPECT_EQ(received_[5], (Texts{"RESOURCE_EXHAUSTED"}));
}

}  // namespace
}  // namespace muster::agent
