// Keys and barriers of a generation, over sessions of workers and restarts of the coordinator.
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/harness.h"
#include "coordinator/core/testing/totals.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {
namespace {

using testing::CountSent;
using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using testing::MakeSpec;
using Message = v1::CoordinatorMessage;

v1::Hello WithInventory(v1::Hello hello, v1::GenerationReport report) {
  *hello.add_inventory() = std::move(report);
  return hello;
}

v1::WorkerMessage PutMessage(const std::string& job, const std::string& key,
                             const std::string& value, uint64_t generation = 1) {
  v1::WorkerMessage message;
  message.mutable_put_key()->set_job_id(job);
  message.mutable_put_key()->set_generation(generation);
  message.mutable_put_key()->set_key(key);
  message.mutable_put_key()->set_value(value);
  return message;
}

v1::WorkerMessage GetMessage(const std::string& job, const std::string& key,
                             uint64_t generation = 1) {
  v1::WorkerMessage message;
  message.mutable_get_key()->set_job_id(job);
  message.mutable_get_key()->set_generation(generation);
  message.mutable_get_key()->set_key(key);
  return message;
}

v1::WorkerMessage ArriveMessage(const std::string& job, uint64_t sequence,
                                std::vector<uint32_t> ranks) {
  v1::WorkerMessage message;
  message.mutable_arrive_barrier()->set_job_id(job);
  message.mutable_arrive_barrier()->set_generation(1);
  message.mutable_arrive_barrier()->mutable_barrier()->set_group("world");
  message.mutable_arrive_barrier()->mutable_barrier()->set_sequence(sequence);
  for (const uint32_t rank : ranks) message.mutable_arrive_barrier()->add_ranks(rank);
  return message;
}

TEST(Keys, PutKeyReleasesWaiters) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  const Effects asked = cluster.SendMessage("b", GetMessage(job, "unique-id/WORLD/0"));
  EXPECT_EQ(CountSent(asked, cluster.session("b"), Message::kKeyValue), 0);
  // The answer is sent to the node's newest session.
  cluster.CloseStream("b");
  cluster.Open(WithInventory(cluster.MakeHello("b", 1),
                             cluster.MakeInventory(job, {Harness::MakeReport(1, v1::STARTED)})));
  const Effects put = cluster.SendMessage("a", PutMessage(job, "unique-id/WORLD/0", "id"));
  const Message* answer = FindSent(put, cluster.session("b"), Message::kKeyValue);
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->key_value().value(), "id");
  EXPECT_EQ(answer->key_value().code(), 0);
  const Effects late = cluster.SendMessage("b", GetMessage(job, "unique-id/WORLD/0"));
  EXPECT_EQ(CountSent(late, cluster.session("b"), Message::kKeyValue), 1);
}

TEST(Keys, AreSeparatePerGeneration) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.SendMessage("a", PutMessage(job, "k", "of 1"));
  cluster.ExitAll(job, ExitWith(3));
  ASSERT_EQ(cluster.Get(job).generation(), 2u);
  const Effects asked = cluster.SendMessage("a", GetMessage(job, "k", 2));
  EXPECT_EQ(CountSent(asked, cluster.session("a"), Message::kKeyValue), 0);
  const Effects stale = cluster.SendMessage("a", PutMessage(job, "k", "of 1", 1));
  const Message* refused = FindSent(stale, cluster.session("a"), Message::kKeyValue);
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->key_value().code(), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_EQ(refused->key_value().generation(), 1u);
}

TEST(Barriers, ReleaseAllNodesWhenLastRankArrives) {
  Harness cluster;
  cluster.Join("a", 2);
  cluster.Join("b", 2);
  const std::string job = cluster.Submit(MakeSpec(2, 2));
  cluster.SendMessage("a", ArriveMessage(job, 1, {0, 1}));
  cluster.SendMessage("b", ArriveMessage(job, 1, {2}));
  const v1::Job waiting = cluster.Get(job);
  ASSERT_EQ(waiting.waits_size(), 2);
  EXPECT_EQ(waiting.waits(1).what(), "barrier world/1");
  ASSERT_EQ(waiting.waits(1).missing_size(), 1);
  EXPECT_EQ(waiting.waits(1).missing(0).rank(), 3u);
  // Arrivals outlive their session.
  cluster.CloseStream("a");
  cluster.Open(WithInventory(cluster.MakeHello("a", 2),
                             cluster.MakeInventory(job, {Harness::MakeReport(0, v1::STARTED),
                                                         Harness::MakeReport(1, v1::STARTED)})));
  const Effects released = cluster.SendMessage("b", ArriveMessage(job, 1, {2, 3}));
  EXPECT_EQ(CountSent(released, cluster.session("a"), Message::kReleaseBarrier), 1);
  EXPECT_EQ(CountSent(released, cluster.session("b"), Message::kReleaseBarrier), 1);
  const Effects again = cluster.SendMessage("a", ArriveMessage(job, 1, {0, 1}));
  EXPECT_EQ(CountSent(again, cluster.session("a"), Message::kReleaseBarrier), 1);
  EXPECT_EQ(CountSent(again, cluster.session("b"), Message::kReleaseBarrier), 0);
  EXPECT_EQ(testing::SamplesOf(cluster.core().TakeStats(), "muster_barrier_wait_seconds").size(),
            1u);
}

TEST(Barriers, IgnoreArrivalsForRanksOfOtherNodes) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  const Effects effects = cluster.SendMessage("a", ArriveMessage(job, 1, {0, 1, 7}));
  EXPECT_EQ(CountSent(effects, cluster.session("a"), Message::kReleaseBarrier), 0);
}

TEST(Barriers, AreAbortedWhenGenerationStops) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.SendMessage("a", ArriveMessage(job, 1, {0}));
  const Effects failed = cluster.ReportExit("b", job, 1, ExitWith(3));
  const Message* release = FindSent(failed, cluster.session("a"), Message::kReleaseBarrier);
  ASSERT_NE(release, nullptr);
  EXPECT_EQ(release->release_barrier().code(), static_cast<int>(absl::StatusCode::kAborted));
  const Effects late = cluster.SendMessage("a", ArriveMessage(job, 2, {0}));
  release = FindSent(late, cluster.session("a"), Message::kReleaseBarrier);
  ASSERT_NE(release, nullptr);
  EXPECT_EQ(release->release_barrier().code(), static_cast<int>(absl::StatusCode::kAborted));
}

TEST(Barriers, AreAbortedWhenARankCanNoLongerArrive) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  cluster.SendMessage("a", ArriveMessage(job, 1, {0}));
  const Effects ended = cluster.ReportExit("b", job, 1, ExitWith(0));
  const Message* release = FindSent(ended, cluster.session("a"), Message::kReleaseBarrier);
  ASSERT_NE(release, nullptr);
  EXPECT_EQ(release->release_barrier().code(), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_EQ(release->release_barrier().message(),
            "rank 1 ended without arriving at barrier world/1");
  const Effects again = cluster.SendMessage("a", ArriveMessage(job, 1, {0}));
  EXPECT_EQ(CountSent(again, cluster.session("a"), Message::kReleaseBarrier), 1);
}

TEST(Barriers, WithoutRecordAreNotAbortedBeforeAllNodesReconnectAfterRestart) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  cluster.ReportExit("b", job, 1, ExitWith(0));
  cluster.ForgetPassedBarriers(job, 1);
  cluster.Restart();
  cluster.Open(WithInventory(cluster.MakeHello("a", 1),
                             cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)})));
  const Effects waits = cluster.SendMessage("a", ArriveMessage(job, 1, {0}));
  EXPECT_EQ(CountSent(waits, cluster.session("a"), Message::kReleaseBarrier), 0);
  cluster.Run(absl::Seconds(9), {"a"});
  EXPECT_EQ(cluster.StateOf("b"), v1::SUSPECT);
  cluster.Advance(absl::Seconds(1));
  const Effects lost = cluster.Step(Tick{});
  const Message* release = FindSent(lost, cluster.session("a"), Message::kReleaseBarrier);
  ASSERT_NE(release, nullptr);
  EXPECT_EQ(release->release_barrier().code(), static_cast<int>(absl::StatusCode::kAborted));
}

// All ranks arrive at barrier 3 and node "b" is released, its rank ends, and the coordinator ends
// before it releases node "a". Returns the job.
std::string EndRankAfterBarrier(Harness& cluster) {
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  cluster.Arrive("a", job, {0}, 3);
  cluster.Arrive("b", job, {1}, 3);
  cluster.ReportExit("b", job, 1, ExitWith(0));
  cluster.Restart();
  cluster.Open(WithInventory(cluster.MakeHello("a", 1),
                             cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)})));
  return job;
}

TEST(Barriers, PassedByEndedRankStayPassedWithoutItsNode) {
  Harness cluster;
  const std::string job = EndRankAfterBarrier(cluster);
  cluster.Run(absl::Minutes(1), {"a"});
  ASSERT_EQ(cluster.StateOf("b"), v1::LOST);
  const Effects passed = cluster.Arrive("a", job, {0}, 3);
  const Message* release = FindSent(passed, cluster.session("a"), Message::kReleaseBarrier);
  ASSERT_NE(release, nullptr);
  EXPECT_EQ(release->release_barrier().code(), 0) << release->release_barrier().message();
}

TEST(Barriers, NotPassedByEndedRankAreAbortedAtOnceAfterRestart) {
  Harness cluster;
  const std::string job = EndRankAfterBarrier(cluster);
  const Effects aborted = cluster.Arrive("a", job, {0}, 4);
  const Message* release = FindSent(aborted, cluster.session("a"), Message::kReleaseBarrier);
  ASSERT_NE(release, nullptr);
  EXPECT_EQ(release->release_barrier().code(), static_cast<int>(absl::StatusCode::kAborted));
}

TEST(Barriers, ReportedWithExitAreRecorded) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  // The coordinator that released node "b" has ended; only the worker knows of barrier 3.
  cluster.Restart();
  v1::RankReport ended = Harness::MakeReport(1, v1::EXITED);
  v1::GenerationReport report = cluster.MakeInventory(job, {ended});
  report.add_passed_barriers()->set_group("world");
  report.mutable_passed_barriers(0)->set_sequence(3);
  cluster.Open(WithInventory(cluster.MakeHello("b", 1), report));
  cluster.Restart();
  cluster.Open(WithInventory(cluster.MakeHello("a", 1),
                             cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)})));
  const Effects passed = cluster.Arrive("a", job, {0}, 3);
  const Message* release = FindSent(passed, cluster.session("a"), Message::kReleaseBarrier);
  ASSERT_NE(release, nullptr);
  EXPECT_EQ(release->release_barrier().code(), 0);
}

TEST(Barriers, OfTooManyGroupsAreNotRecorded) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  for (int i = 0; i <= limits::kRecordedBarrierGroups; ++i) {
    cluster.Arrive("a", job, {0}, 1, absl::StrCat("group-", i));
    cluster.Arrive("b", job, {1}, 1, absl::StrCat("group-", i));
  }
  cluster.ReportExit("b", job, 1, ExitWith(0));
  v1::PlacementRecord record;
  ASSERT_TRUE(record.ParseFromString(cluster.records().at(PlacementKey(job, 1, 1))));
  EXPECT_TRUE(record.placement().ranks(0).exited());
  EXPECT_FALSE(record.placement().has_passed_barriers());
}

TEST(Barriers, RestartedCoordinatorLearnsPassedBarriers) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  // All ranks arrived, node "a" was released, and the coordinator died before it released node "b".
  cluster.Restart();
  cluster.Open(WithInventory(cluster.MakeHello("b", 1),
                             cluster.MakeInventory(job, {Harness::MakeReport(1, v1::CONNECTED)})));
  const Effects waits = cluster.SendMessage("b", ArriveMessage(job, 3, {1}));
  EXPECT_EQ(CountSent(waits, cluster.session("b"), Message::kReleaseBarrier), 0);
  v1::GenerationReport passed = cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)});
  passed.add_passed_barriers()->set_group("world");
  passed.mutable_passed_barriers(0)->set_sequence(3);
  const Effects effects = cluster.Open(WithInventory(cluster.MakeHello("a", 1), passed));
  EXPECT_EQ(CountSent(effects, cluster.session("b"), Message::kReleaseBarrier), 1);
}

}  // namespace
}  // namespace muster::core
