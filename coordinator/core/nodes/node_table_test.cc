#include "common/limits.h"
#include "coordinator/core/nodes/nodes.h"
#include "coordinator/core/testing/parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::Advance;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::MakeContext;
using testing::MakeSession;
using testing::Open;
using testing::Sent;
using Message = v1::CoordinatorMessage;

class NodeTableTest : public ::testing::Test {
 protected:
  std::optional<SteadyTime> LeaseEnd() const {
    return context_.timers.Get({TimerKey::Kind::kLease, "a"});
  }

  const NodeName a_{"a"};
  Context context_ = MakeContext();
  Nodes all_nodes_{context_};
  NodeTable& nodes_ = all_nodes_.table;
  NodeSessions& sessions_ = all_nodes_.sessions;
};

TEST_F(NodeTableTest, AdmittedWorkerIsReadyAndHasLease) {
  const Node* const node = Open(sessions_, MakeSession(1, "a", 2));
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->state, v1::READY);
  EXPECT_EQ(node->address, "10.0.0.1");
  EXPECT_EQ(Sent(context_, 1, Message::kWelcome).size(), 1u);
  EXPECT_EQ(LeaseEnd(), context_.now.steady + context_.options.lease);
}

TEST_F(NodeTableTest, RejectsOldProtocol) {
  SessionOpened session = MakeSession(1, "a");
  session.hello.set_protocol_version(kProtocolVersion + 1);
  EXPECT_EQ(Open(sessions_, session), nullptr);
  ASSERT_EQ(context_.effects.closes.size(), 1u);
  EXPECT_EQ(context_.effects.closes[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(nodes_.all(), IsEmpty());
}

TEST_F(NodeTableTest, RejectsSecondWorkerWhileFirstIsLive) {
  Open(sessions_, MakeSession(1, "a", 1, /*incarnation=*/1));
  EXPECT_EQ(Open(sessions_, MakeSession(2, "a", 1, /*incarnation=*/2)), nullptr);
  sessions_.OnSessionClosed(SessionId(1));
  EXPECT_NE(Open(sessions_, MakeSession(3, "a", 1, /*incarnation=*/2)), nullptr);
  // The first incarnation is fenced now.
  sessions_.OnSessionClosed(SessionId(3));
  EXPECT_EQ(Open(sessions_, MakeSession(4, "a", 1, /*incarnation=*/1)), nullptr);
}

TEST_F(NodeTableTest, NewSessionReplacesOldOne) {
  Open(sessions_, MakeSession(1, "a"));
  ASSERT_NE(Open(sessions_, MakeSession(2, "a")), nullptr);
  ASSERT_EQ(context_.effects.closes.size(), 1u);
  EXPECT_EQ(context_.effects.closes[0].session, SessionId(1));
  EXPECT_EQ(sessions_.RenewLease(SessionId(1)), nullptr);
  EXPECT_EQ(sessions_.OnSessionClosed(SessionId(1)), nullptr);
  EXPECT_EQ(nodes_.at(a_).state, v1::READY);
}

TEST_F(NodeTableTest, MessagesRenewLeaseAndBrokenStreamDoesNot) {
  Open(sessions_, MakeSession(1, "a"));
  Advance(context_, absl::Seconds(4));
  ASSERT_NE(sessions_.RenewLease(SessionId(1)), nullptr);
  const SteadyTime end = context_.now.steady + context_.options.lease;
  EXPECT_EQ(LeaseEnd(), end);
  Advance(context_, absl::Seconds(1));
  sessions_.OnSessionClosed(SessionId(1));
  EXPECT_EQ(nodes_.at(a_).state, v1::SUSPECT);
  EXPECT_EQ(LeaseEnd(), end);
}

TEST_F(NodeTableTest, LostNodeHasNoSessionOrLease) {
  Open(sessions_, MakeSession(1, "a"));
  sessions_.Lose(a_, "disconnected");
  EXPECT_EQ(nodes_.at(a_).state, v1::LOST);
  EXPECT_EQ(LeaseEnd(), std::nullopt);
  ASSERT_EQ(context_.effects.closes.size(), 1u);
  context_.effects = Effects();
  nodes_.SendForget(nodes_.at(a_), v1::ForgetGeneration());
  EXPECT_THAT(context_.effects.sends, IsEmpty());
}

TEST_F(NodeTableTest, OccupiedSlotsAreNotOffered) {
  Open(sessions_, MakeSession(1, "a", 3));
  const RankRef rank{JobId("job"), Generation(1), 0};
  nodes_.Occupy(a_, rank, {1});
  EXPECT_THAT(nodes_.at(a_).Offer("cpu")->free_slots, ElementsAre(0, 2));
  nodes_.Vacate(a_, rank);
  EXPECT_THAT(nodes_.at(a_).Offer("cpu")->free_slots, ElementsAre(0, 1, 2));
}

TEST_F(NodeTableTest, WritesOneRecordPerChangedNode) {
  Open(sessions_, MakeSession(1, "a"));
  all_nodes_.health.Cordon(a_, "noisy");
  all_nodes_.health.Cordon(a_, "very noisy");
  nodes_.WriteChanges();
  ASSERT_EQ(context_.effects.writes.size(), 1u);
  v1::NodeRecord record;
  ASSERT_TRUE(record.ParseFromString(*context_.effects.writes[0].value));
  EXPECT_EQ(record.cordon_reason(), "very noisy");
  EXPECT_EQ(record.incarnation(), 1u);
  context_.effects = Effects();
  all_nodes_.health.Cordon(a_, "very noisy");  // no change
  nodes_.WriteChanges();
  EXPECT_THAT(context_.effects.writes, IsEmpty());
  EXPECT_TRUE(all_nodes_.health.Uncordon(a_));
  EXPECT_FALSE(all_nodes_.health.Uncordon(a_));
}

TEST_F(NodeTableTest, FullTableDropsUnneededLostNode) {
  for (uint32_t i = 0; i < limits::kNodes; ++i) {
    v1::NodeRecord record;
    record.set_name(absl::StrCat("node-", i));
    record.set_incarnation(1);
    record.set_cordoned(i > 1);  // cordoned nodes are kept
    sessions_.Restore(std::move(record));
  }
  for (const char* name : {"node-0", "node-1"})
    sessions_.Lose(NodeName(name), "its lease has ended");
  const auto needed = [](const NodeName& name) { return name == NodeName("node-0"); };
  ASSERT_NE(sessions_.Open(MakeSession(1, "new-1"), needed), nullptr);
  EXPECT_NE(nodes_.Find(NodeName("node-0")), nullptr);
  EXPECT_EQ(nodes_.Find(NodeName("node-1")), nullptr);
  EXPECT_EQ(sessions_.Open(MakeSession(2, "new-2"), needed), nullptr);
  EXPECT_EQ(context_.effects.closes.at(0).status.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(NodeTableTest, RecordedNodeGetsFreshLease) {
  v1::NodeRecord record;
  record.set_name("a");
  sessions_.Restore(record);
  EXPECT_EQ(nodes_.at(a_).state, v1::SUSPECT);
  EXPECT_FALSE(nodes_.at(a_).seen);
  EXPECT_TRUE(LeaseEnd().has_value());
}

TEST_F(NodeTableTest, NodeOfLivingGenerationGetsFreshLease) {
  v1::NodePlacement placement;
  placement.set_node("a");
  placement.set_incarnation(7);
  sessions_.Expect(placement);
  EXPECT_EQ(nodes_.at(a_).state, v1::SUSPECT);
  EXPECT_FALSE(nodes_.at(a_).seen);
  EXPECT_EQ(nodes_.at(a_).incarnation(), Incarnation(7));
  EXPECT_TRUE(LeaseEnd().has_value());
}

}  // namespace
}  // namespace muster::core
