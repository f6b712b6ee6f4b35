#include "coordinator/core/owners/visibility.h"

#include <string>

#include "coordinator/core/owners/filled_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Actor kAlice{"alice", false};
const Actor kBob{"bob", false};
const Actor kAdmin{"root", true};

v1::Job MakeJob() {
  v1::Job job = FilledJob("s3cr3t");
  job.set_owner("alice");
  job.set_reason("RankFailed");
  return job;
}

std::string TextOf(const v1::Job& job) { return job.SerializeAsString(); }

TEST(HidePrivate, LeavesEverythingToOwnerAndAdmins) {
  for (const Actor& actor : {kAlice, kAdmin}) {
    v1::Job job = MakeJob();
    HidePrivate(actor, job);
    EXPECT_EQ(TextOf(job), TextOf(MakeJob())) << actor.name;
  }
}

TEST(HidePrivate, RemovesEveryTextThatIsNotPublic) {
  v1::Job job = MakeJob();
  ASSERT_THAT(TextOf(job), HasSubstr("s3cr3t"));
  HidePrivate(kBob, job);
  EXPECT_THAT(job.DebugString(), Not(HasSubstr("s3cr3t")));
  EXPECT_TRUE(job.private_hidden());
  // The public part remains.
  EXPECT_EQ(job.owner(), "alice");
  EXPECT_EQ(job.reason(), "RankFailed");
  EXPECT_EQ(job.spec().train().optimizer().name(), "public");
  EXPECT_EQ(job.ranks_size(), 1);
  EXPECT_EQ(job.ranks(0).exit().exit_code(), 1);
  EXPECT_EQ(job.first_failure().message(), "rank 1 on public was killed by signal 1");
  EXPECT_EQ(job.message(), "rank 1 on public was killed by signal 1");
  EXPECT_EQ(job.spec().files_size(), 0) << "not even their number";
}

TEST(HidePrivate, KeepsWhatEveryoneMaySee) {
  v1::Job job;
  job.set_job_id("job-x7k2q");
  job.set_owner("alice");
  job.set_reason("CancelledByUser");
  job.set_message("cancelled by alice");
  job.mutable_progress()->set_phase("training");
  job.add_waits()->set_what("rendezvous");
  const std::string before = TextOf(job);
  HidePrivate(kBob, job);
  EXPECT_EQ(TextOf(job), before) << "nor is private_hidden set";
}

TEST(HidePrivate, TellsOfFailuresWhoFailedAndHow) {
  v1::Job job = MakeJob();
  v1::FirstFailure& failure = *job.mutable_first_failure();
  failure.set_node("node-2");
  const auto shown = [&job, &failure] {
    failure.set_message("rank 1 on node-2: s3cr3t");
    HidePrivate(kBob, job);
    return failure.message();
  };
  EXPECT_EQ(shown(), "rank 1 on node-2 was killed by signal 1");
  failure.mutable_exit()->clear_signal();
  EXPECT_EQ(shown(), "rank 1 on node-2 exited with code 1");
  failure.mutable_exit()->set_out_of_memory(true);
  EXPECT_EQ(shown(), "rank 1 on node-2 ran out of memory");
  failure.clear_exit();
  EXPECT_EQ(shown(), "rank 1 on node-2 failed");
  failure.clear_rank();
  EXPECT_EQ(shown(), "node node-2 failed");
  failure.clear_node();
  EXPECT_EQ(shown(), "");
}

TEST(HidePrivate, LeavesMessagesOfEventsThatTheCoordinatorMakesOfNames) {
  v1::JobEvent event;
  event.set_type("Held");
  event.set_message("held by alice");
  RemovePrivate(event);
  EXPECT_EQ(event.message(), "held by alice");
  event.set_type("Stopping");
  RemovePrivate(event);
  EXPECT_EQ(event.message(), "");
}

TEST(HidePrivate, SharedJobShowsWhatARerunNeeds) {
  v1::Job job = MakeJob();
  job.set_shared(true);
  const v1::Job all = job;
  HidePrivate(kBob, job);
  EXPECT_EQ(job.spec().command(0), all.spec().command(0));
  EXPECT_EQ(job.spec().files(0).sha256(), all.spec().files(0).sha256());
  EXPECT_EQ(job.checkpoint().dir(), all.checkpoint().dir());
  EXPECT_THAT(job.spec().env(), IsEmpty());
  EXPECT_THAT(job.spec().secret_env(), IsEmpty());
  EXPECT_THAT(job.array_values(), IsEmpty());
  EXPECT_TRUE(job.private_hidden());
  job.clear_spec();
  job.clear_checkpoint();
  EXPECT_THAT(job.DebugString(), Not(HasSubstr("s3cr3t")));
}

TEST(HidePrivate, LeavesJobsWithoutOwnerOpen) {
  v1::Job job = MakeJob();
  job.clear_owner();
  HidePrivate(kBob, job);
  EXPECT_EQ(job.spec().env().count("s3cr3t"), 1u);
}

TEST(HidePrivate, LeavesErrorsOfFailedLaunchesToAdmins) {
  for (const Actor& actor : {kAlice, kAdmin}) {
    v1::Node node;
    node.set_failed_launches(2);
    node.set_launch_failure("cannot run s3cr3t");
    HidePrivate(actor, node);
    EXPECT_EQ(node.launch_failure(), actor.is_admin ? "cannot run s3cr3t" : "");
    EXPECT_EQ(node.failed_launches(), 2u);
  }
}

TEST(VisibleTo, CopiesOnlyWhatHasToBeHidden) {
  const auto job = std::make_shared<const v1::Job>(MakeJob());
  EXPECT_EQ(VisibleTo(kAlice, job), job);
  const auto visible = VisibleTo(kBob, job);
  EXPECT_NE(visible, job);
  EXPECT_TRUE(visible->private_hidden());
  EXPECT_THAT(TextOf(*job), HasSubstr("s3cr3t"));
}

}  // namespace
}  // namespace muster::core
