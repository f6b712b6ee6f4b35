// Owners of jobs in the whole core: permissions, limits, idempotency keys, use of the cluster and
// secrets.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {
namespace {

using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;

const RequestId kRequest(900);
const Actor kAlice{"alice", false};
const Actor kBob{"bob", false};
const Actor kAdmin{"root", true};

absl::StatusOr<v1::Job> ReplyOf(const Effects& effects) {
  EXPECT_EQ(effects.replies.size(), 1u);
  if (effects.replies.empty()) return absl::UnknownError("no reply");
  return effects.replies[0].job;
}

absl::Status StatusOf(const Effects& effects) { return ReplyOf(effects).status(); }

class OwnersTest : public ::testing::Test {
 protected:
  static Options MakeOptions() {
    Options options = Harness::DefaultOptions();
    options.scheduler.default_limits.queued_jobs = 3;
    return options;
  }
  static SubmitJob SubmitEvent(const Actor& actor, const std::string& job,
                               const std::string& key = "", v1::JobSpec spec = MakeCommandSpec(1)) {
    SubmitJob submit{kRequest, JobId(job), std::move(spec), key};
    submit.actor = actor;
    submit.spec_digest = submit.spec.SerializeAsString();
    return submit;
  }
  absl::StatusOr<v1::Job> Submit(const Actor& actor, const std::string& job,
                                 const std::string& key = "") {
    return ReplyOf(cluster_.Step(SubmitEvent(actor, job, key)));
  }
  v1::GetReportResponse Report() { return cluster_.core().GetReport(7, cluster_.now()); }
  // The owner's part of the report; empty if it has none.
  v1::GetReportResponse::Owner ReportOf(const std::string& owner) {
    const v1::GetReportResponse report = Report();
    for (const auto& row : report.owners()) {
      if (row.owner() == owner) return row;
    }
    return {};
  }

  Harness cluster_{MakeOptions()};
};

// ------------------------------------------------------------------------------------------------
// permissions

TEST_F(OwnersTest, OnlyOwnerAndAdminsMayChangeQueuedJob) {
  ASSERT_TRUE(Submit(kAlice, "job").ok());
  const std::string job = "job";
  const std::vector<Event> by_bob = {CancelJob{kRequest, job, std::nullopt, kBob},
                                     HoldJob{kRequest, job, kBob},
                                     ReleaseJob{kRequest, job, kBob},
                                     RequeueJob{kRequest, job, kBob},
                                     CheckpointJob{kRequest, job, kBob},
                                     RemoveJob{kRequest, job, kBob}};
  for (const Event& event : by_bob) {
    const absl::Status refused = StatusOf(cluster_.Step(event));
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << event.index() << ": " << refused;
    EXPECT_EQ(refused.message(),
              "job job belongs to alice, and bob is neither its owner nor an admin");
  }
  EXPECT_EQ(cluster_.State("job"), v1::QUEUED);
  EXPECT_TRUE(StatusOf(cluster_.Step(HoldJob{kRequest, job, kAlice})).ok());
  EXPECT_TRUE(StatusOf(cluster_.Step(ReleaseJob{kRequest, job, kAdmin})).ok());
  EXPECT_TRUE(StatusOf(cluster_.Step(CancelJob{kRequest, job, std::nullopt, kAlice})).ok());
  EXPECT_EQ(cluster_.State("job"), v1::CANCELLED);
}

TEST_F(OwnersTest, NodeNeedsTheFilesOfItsRunningJobs) {
  cluster_.Join("a");
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.add_files()->set_sha256("running");
  ASSERT_TRUE(StatusOf(cluster_.Step(SubmitEvent(kAlice, "job", "", spec))).ok());
  ASSERT_EQ(cluster_.State("job"), v1::STARTING);
  cluster_.Join("b");
  spec.mutable_files(0)->set_sha256("second");
  ASSERT_TRUE(StatusOf(cluster_.Step(SubmitEvent(kAlice, "second", "", spec))).ok());
  const auto needs = [&](const std::optional<NodeName>& node, const std::string& digest) {
    return cluster_.core().NeedsFile(node, digest);
  };
  EXPECT_TRUE(needs(NodeName("a"), "running"));
  EXPECT_FALSE(needs(NodeName("b"), "running"));
  EXPECT_TRUE(needs(NodeName("b"), "second"));
  EXPECT_TRUE(needs(std::nullopt, "running") && needs(std::nullopt, "second"));
  EXPECT_FALSE(needs(std::nullopt, "other"));
  cluster_.ExitAll("job", ExitWith(0));
  EXPECT_FALSE(needs(NodeName("a"), "running") || needs(std::nullopt, "running"));
}

// Files and checkpoints of jobs belong to their owners until an admin shares the job.
TEST_F(OwnersTest, SharedJobCanBeRerunAndContinuedByOthers) {
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.set_checkpoint_dir("/c/job");
  spec.add_files()->set_sha256("digest");
  ASSERT_TRUE(StatusOf(cluster_.Step(SubmitEvent(kAlice, "job", "", spec))).ok());
  v1::JobSpec continued;
  continued.mutable_train()->mutable_checkpoint()->set_resume_from("/c/job");
  const auto usable = [&](const Actor& actor) {
    return cluster_.core().UsableFiles(actor, {"digest", "other"}).size();
  };
  const auto submitted = [&](const Actor& actor) {
    return cluster_.core().CheckSubmit(SubmitEvent(actor, "new", "", continued), cluster_.now());
  };
  const auto share = [&](bool shared) {
    ASSERT_TRUE(StatusOf(cluster_.Step(ShareJob{kRequest, "job", shared, kAdmin})).ok());
    cluster_.Restart();
    EXPECT_EQ(cluster_.Get("job").shared(), shared);
  };
  EXPECT_EQ(usable(kAlice), 1u);
  EXPECT_EQ(usable(kAdmin), 1u);
  EXPECT_EQ(usable(kBob), 0u);
  EXPECT_TRUE(absl::IsPermissionDenied(submitted(kBob)));
  EXPECT_TRUE(submitted(kAlice).ok() && submitted(kAdmin).ok());
  // Also in a task of an array.
  SubmitJob array = SubmitEvent(kBob, "array", "", MakeCommandSpec(1));
  array.tasks.push_back({std::make_shared<const v1::JobSpec>(continued)});
  EXPECT_TRUE(absl::IsPermissionDenied(cluster_.core().CheckSubmit(array, cluster_.now())));
  share(true);
  share(true);
  EXPECT_EQ(usable(kBob), 1u);
  EXPECT_TRUE(submitted(kBob).ok());
  share(false);
  EXPECT_EQ(usable(kBob), 0u);
  EXPECT_FALSE(submitted(kBob).ok());
  const std::vector<v1::JobEvent> listed = *cluster_.core().ListEvents(JobId("job"), 1);
  std::vector<std::string> events;
  for (const v1::JobEvent& event : listed) events.push_back(event.message());
  EXPECT_EQ(events, (std::vector<std::string>{"shared by root", "no longer shared by root"}));
}

TEST_F(OwnersTest, JobWithoutOwnerIsOpenToAll) {
  const std::string job = cluster_.Submit(MakeCommandSpec(1));
  EXPECT_TRUE(StatusOf(cluster_.Step(HoldJob{kRequest, job, kBob})).ok());
  EXPECT_TRUE(StatusOf(cluster_.Step(CancelJob{kRequest, job, std::nullopt, kBob})).ok());
}

TEST_F(OwnersTest, ListsJobsOfOneOwner) {
  ASSERT_TRUE(Submit(kAlice, "a").ok());
  ASSERT_TRUE(Submit(kBob, "b").ok());
  v1::ListJobsRequest request;
  request.set_owner("alice");
  const std::vector<v1::Job> jobs = cluster_.core().ListJobs(request, cluster_.now());
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].job_id(), "a");
}

// ------------------------------------------------------------------------------------------------
// submissions

TEST_F(OwnersTest, IdempotencyKeysBelongToOwners) {
  EXPECT_EQ(Submit(kAlice, "a", "key")->job_id(), "a");
  EXPECT_EQ(Submit(kBob, "b", "key")->job_id(), "b");
  EXPECT_EQ(Submit(kAlice, "a2", "key")->job_id(), "a");
  cluster_.Restart();
  EXPECT_EQ(Submit(kBob, "b2", "key")->job_id(), "b");
  v1::JobSpec other = MakeCommandSpec(1);
  other.add_command("other");
  EXPECT_TRUE(absl::IsAlreadyExists(
      StatusOf(cluster_.Step(SubmitEvent(kBob, "b3", "key", std::move(other))))));
  // The key of a removed job is free, that of another owner is not.
  EXPECT_TRUE(StatusOf(cluster_.Step(CancelJob{kRequest, "a", std::nullopt, kAlice})).ok());
  EXPECT_TRUE(StatusOf(cluster_.Step(RemoveJob{kRequest, "a", kAlice})).ok());
  EXPECT_EQ(Submit(kAlice, "a4", "key")->job_id(), "a4");
  EXPECT_EQ(Submit(kBob, "b4", "key")->job_id(), "b");
}

TEST_F(OwnersTest, PriorityClassIsBoundedByRole) {
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.set_priority_class("high");
  EXPECT_TRUE(absl::IsPermissionDenied(
      cluster_.core().CheckSubmit(SubmitEvent(kAlice, "a", "", spec), cluster_.now())));
  EXPECT_TRUE(
      absl::IsPermissionDenied(StatusOf(cluster_.Step(SubmitEvent(kAlice, "a", "", spec)))));
  EXPECT_TRUE(cluster_.core().CheckSubmit(SubmitEvent(kAdmin, "b", "", spec), cluster_.now()).ok());
  EXPECT_TRUE(StatusOf(cluster_.Step(SubmitEvent(kAdmin, "b", "", spec))).ok());
}

TEST_F(OwnersTest, QueuedJobsOfOneOwnerAreLimited) {
  for (const char* job : {"a", "b", "c"}) ASSERT_TRUE(Submit(kAlice, job).ok());
  ASSERT_TRUE(StatusOf(cluster_.Step(HoldJob{kRequest, "c", kAlice})).ok());
  const absl::Status refused = Submit(kAlice, "d").status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("limit of 3"));
  EXPECT_TRUE(Submit(kBob, "d").ok());
  cluster_.Restart();
  EXPECT_TRUE(absl::IsResourceExhausted(Submit(kAlice, "e").status())) << "counted at the start";
  // A started job does not count.
  cluster_.Join("node", 1);
  EXPECT_EQ(cluster_.State("a"), v1::STARTING);
  EXPECT_TRUE(Submit(kAlice, "e").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Submit(kAlice, "f").status()));
  ASSERT_TRUE(StatusOf(cluster_.Step(CancelJob{kRequest, "c", std::nullopt, kAlice})).ok());
  EXPECT_TRUE(Submit(kAlice, "f").ok());
}

// ------------------------------------------------------------------------------------------------
// use of the cluster

TEST_F(OwnersTest, ChargesSlotsFromStartToEndOfGenerations) {
  v1::Hello hello = cluster_.MakeHello("node", 4);
  for (v1::Slot& slot : *hello.mutable_slots()) slot.set_kind(slot.index() < 2 ? "cpu" : "gpu");
  cluster_.Open(hello);
  v1::JobSpec on_gpus = MakeCommandSpec(1, 2);
  on_gpus.mutable_resources()->set_device("gpu");
  ASSERT_TRUE(StatusOf(cluster_.Step(SubmitEvent(kAlice, "gpu", "", on_gpus))).ok());
  v1::JobSpec on_cpu = MakeCommandSpec(1);
  on_cpu.mutable_resources()->set_device("cpu");
  ASSERT_TRUE(StatusOf(cluster_.Step(SubmitEvent(kBob, "cpu", "", on_cpu))).ok());
  cluster_.BringUp("gpu");
  cluster_.BringUp("cpu");
  cluster_.Run(absl::Seconds(60), {"node"});
  EXPECT_NEAR(ReportOf("alice").gpu_slot_seconds(), 2 * 60, 1e-6) << "while it runs";
  cluster_.ExitAll("gpu", ExitWith(0));
  cluster_.Run(absl::Seconds(40), {"node"});
  cluster_.ExitAll("cpu", ExitWith(0));
  cluster_.Run(absl::Seconds(20), {"node"});
  EXPECT_NEAR(ReportOf("alice").gpu_slot_seconds(), 2 * 60, 1e-6);
  EXPECT_EQ(ReportOf("alice").cpu_slot_seconds(), 0);
  EXPECT_NEAR(ReportOf("bob").cpu_slot_seconds(), 100, 1e-6);
  EXPECT_EQ(ReportOf("bob").jobs_succeeded(), 1u);
  const v1::GetReportResponse report = Report();
  EXPECT_EQ(report.owners(0).owner(), "alice") << "most slot-seconds first";
  const double seconds = absl::ToDoubleSeconds(cluster_.now().wall - FromProto(report.since()));
  EXPECT_NEAR(report.gpu_utilization_ratio(), 2 * 60 / (2 * seconds), 1e-9);
  EXPECT_NEAR(report.cpu_utilization_ratio(), 100 / (2 * seconds), 1e-9);
}

// The coordinator is killed at every stage of two jobs of one owner; a second one that is never
// killed does the same. Their reports and uses must agree: nothing is lost, nothing counted twice.
TEST_F(OwnersTest, RestartsNeitherLoseNorRepeatUse) {
  Harness steady(MakeOptions());
  const auto both = [&](auto act) {
    act(steady);
    act(cluster_);
    cluster_.Restart();
    for (const Harness* harness : {&steady, &cluster_}) {
      EXPECT_EQ(harness->now().wall, steady.now().wall);
    }
  };
  const auto expect_equal = [&](double slot_seconds) {
    const auto expected = steady.core().GetReport(7, steady.now());
    const auto found = cluster_.core().GetReport(7, cluster_.now());
    EXPECT_NEAR(found.total().cpu_slot_seconds(), slot_seconds, 1e-6);
    EXPECT_NEAR(expected.total().cpu_slot_seconds(), slot_seconds, 1e-6);
    EXPECT_EQ(found.total().jobs_submitted(), expected.total().jobs_submitted());
    EXPECT_EQ(found.total().jobs_succeeded(), expected.total().jobs_succeeded());
    const auto uses = cluster_.core().ListOwnerUse(cluster_.now());
    const auto expected_uses = steady.core().ListOwnerUse(steady.now());
    ASSERT_EQ(uses.size(), expected_uses.size());
    for (size_t i = 0; i < uses.size(); ++i) {
      EXPECT_NEAR(uses[i].usage(), expected_uses[i].usage(), 1e-6);
      EXPECT_EQ(uses[i].running_slots(), expected_uses[i].running_slots());
      EXPECT_EQ(uses[i].queued_jobs(), expected_uses[i].queued_jobs());
    }
  };
  both([](Harness& h) { h.Step(SubmitEvent(kAlice, "one", "", MakeCommandSpec(1, 2))); });
  both([](Harness& h) { h.Step(SubmitEvent(kAlice, "two", "", MakeCommandSpec(1, 1))); });
  expect_equal(0);
  both([](Harness& h) { h.Join("node", 3); });
  both([](Harness& h) { h.Advance(absl::Seconds(5)); });
  expect_equal(3 * 5);
  both([](Harness& h) { h.Join("node", 3); });
  both([](Harness& h) {
    h.Join("node", 3);
    h.BringUp("one");
    h.ExitAll("one", ExitWith(0));
  });
  expect_equal(3 * 5);
  both([](Harness& h) { h.Advance(absl::Seconds(4)); });
  expect_equal(3 * 5 + 1 * 4);
  both([](Harness& h) {
    h.Join("node", 3);
    h.BringUp("two");
    h.ExitAll("two", ExitWith(0));
  });
  both([](Harness& h) { h.Advance(absl::Seconds(3)); });
  expect_equal(3 * 5 + 1 * 4);
  EXPECT_EQ(ReportOf("alice").jobs_submitted(), 2u);
  EXPECT_EQ(ReportOf("alice").jobs_succeeded(), 2u);
  EXPECT_EQ(FromProto(ReportOf("alice").longest_wait()), absl::Seconds(1));
}

TEST_F(OwnersTest, WritesOwnersOnlyAtStartsAndEnds) {
  const auto writes_owner = [](const Effects& effects) {
    return std::any_of(effects.writes.begin(), effects.writes.end(),
                       [](const store::Mutation& write) { return write.key == "owner/alice"; });
  };
  EXPECT_FALSE(writes_owner(cluster_.Step(SubmitEvent(kAlice, "job"))));
  EXPECT_TRUE(writes_owner(cluster_.Join("node", 1)));
  cluster_.Advance(absl::Seconds(1));
  EXPECT_FALSE(writes_owner(cluster_.ReportPhase("node", "job", 0, v1::STARTED)));
  EXPECT_FALSE(writes_owner(cluster_.SendHeartbeat("node")));
  EXPECT_TRUE(writes_owner(cluster_.ReportExit("node", "job", 0, ExitWith(0))));
}

// ------------------------------------------------------------------------------------------------
// secrets

TEST_F(OwnersTest, LaunchesCarrySecretsOfTheirOwner) {
  EXPECT_TRUE(StatusOf(cluster_.Step(SetSecret{kRequest, "token", "hunter2", kAlice})).ok());
  cluster_.Restart();
  EXPECT_EQ(cluster_.core().ListSecrets(kAlice).secrets_size(), 1);
  EXPECT_EQ(cluster_.core().ListSecrets(kBob).secrets_size(), 0);
  cluster_.Join("node", 1);
  v1::JobSpec spec = MakeCommandSpec(1);
  (*spec.mutable_secret_env())["TOKEN"] = "token";
  for (const Actor& actor : {kAlice, kBob}) {
    const Effects placed = cluster_.Step(SubmitEvent(actor, actor.name, "", spec));
    const v1::CoordinatorMessage* const launch =
        FindSent(placed, cluster_.session("node"), v1::CoordinatorMessage::kLaunch);
    ASSERT_NE(launch, nullptr);
    EXPECT_EQ(launch->launch().secrets_size(), actor.name == "alice" ? 1 : 0);
    cluster_.BringUp(actor.name);
    cluster_.ExitAll(actor.name, ExitWith(0));
  }
  // Only the secret's own record has the value.
  for (const auto& [key, value] : cluster_.records()) {
    if (key == "secret/alice/token") continue;
    EXPECT_EQ(value.find("hunter2"), std::string::npos) << key;
  }
  EXPECT_EQ(cluster_.Get("alice").SerializeAsString().find("hunter2"), std::string::npos);
}

// Also after a restart of the coordinator.
TEST_F(OwnersTest, ExclusiveJobIsChargedItsWholeNode) {
  cluster_.Join("a", 4);
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.mutable_resources()->set_exclusive(true);
  ASSERT_TRUE(cluster_.Step(SubmitEvent(kAlice, "one", "", spec)).replies[0].job.ok());
  const auto running_slots = [this] {
    return cluster_.core().ListOwnerUse(cluster_.now()).at(0).running_slots();
  };
  EXPECT_EQ(running_slots(), 4u);
  cluster_.Restart();
  EXPECT_EQ(running_slots(), 4u);
  cluster_.Advance(absl::Seconds(100));
  EXPECT_NEAR(ReportOf("alice").cpu_slot_seconds(), 400, 1e-6);
}

}  // namespace
}  // namespace muster::core
