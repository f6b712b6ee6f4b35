#include "worker/agent/generation/report_queue.h"

#include <memory>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using Ranks = std::set<uint32_t>;

class ReportQueueTest : public ::testing::Test {
 protected:
  ~ReportQueueTest() override {
    loop_.RunAndWait([this] { queue_.reset(); });
  }

  EventLoop loop_{"test"};
  std::vector<Ranks> sent_;  // used on the loop
  std::unique_ptr<ReportQueue> queue_ =
      std::make_unique<ReportQueue>(loop_, [this](const Ranks& ranks) { sent_.push_back(ranks); });
};

TEST_F(ReportQueueTest, SendsChangesOfOneIterationTogether) {
  loop_.RunAndWait([this] {
    queue_->Add(3);
    queue_->Add(1);
    queue_->Add(3);
    EXPECT_THAT(sent_, ElementsAre());
  });
  loop_.RunAndWait([this] { EXPECT_THAT(sent_, ElementsAre(Ranks{1, 3})); });
}

TEST_F(ReportQueueTest, ResendsChangesSinceHello) {
  loop_.RunAndWait([this] { queue_->Add(1); });
  loop_.RunAndWait([this] {
    queue_->OnHello();
    queue_->Add(2);
  });
  loop_.RunAndWait([this] {
    sent_.clear();
    queue_->Add(3);
    queue_->Resend();
  });
  loop_.RunAndWait([this] {
    EXPECT_THAT(sent_, ElementsAre(Ranks{2, 3}));
    queue_->OnHello();
    queue_->Resend();
    EXPECT_EQ(sent_.size(), 1u);
  });
}

TEST_F(ReportQueueTest, SendsNothingOnceDestroyed) {
  loop_.RunAndWait([this] {
    queue_->Add(1);
    queue_.reset();
  });
  loop_.RunAndWait([this] { EXPECT_THAT(sent_, ElementsAre()); });
}

}  // namespace
}  // namespace muster::agent
