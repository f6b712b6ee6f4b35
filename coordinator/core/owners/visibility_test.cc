#include "coordinator/core/owners/visibility.h"

#include <string>
#include <utility>
#include <vector>

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
  EXPECT_EQ(job.first_failure().message(), "rank 1 on public failed");
  EXPECT_EQ(job.message(), "rank 1 on public failed");
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

TEST(HidePrivate, ShowsThePublicPartOfMessages) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"rank 1 on node-2 exited with code 1: ValueError: s3cr3t",
       "rank 1 on node-2 exited with code 1"},
      {"rank 1 on node-2 was killed by signal 9 (SIGKILL): s3cr3t; attempt 2 follows after 10s",
       "rank 1 on node-2 was killed by signal 9 (SIGKILL)"},
      {"rank 1 on node-2 ran out of memory", "rank 1 on node-2 ran out of memory"},
      {"rank 0 on a stopped participating: rank 1 on b failed: s3cr3t",
       "rank 0 on a stopped participating"},
      {"node a was lost: no heartbeat for 10s", "node a was lost: no heartbeat for 10s"},
      {"FAILED: rank 1 on b exited with code 2: s3cr3t", "FAILED: rank 1 on b exited with code 2"},
      {"FAILED: s3cr3t", "FAILED"},
      {"CANCELLED: cancelled by alice", "CANCELLED: cancelled by alice"},
      {"rank 3: s3cr3t", ""},
      {"rank 3 on s3cr3t", ""},
      {"rank 1 on b says s3cr3t", ""},
      {"node a (rank 1): dataset.path s3cr3t", ""},
      {"no rank had output for 10m: rank 1 on b waits at s3cr3t.py:3", ""},
      {"", ""},
  };
  for (const auto& [text, shown] : cases) {
    v1::JobEvent event;
    event.set_type("Stopping");
    event.set_message(text);
    RemovePrivate(event);
    EXPECT_EQ(event.message(), shown) << text;
  }
  v1::JobEvent event;
  event.set_type("Held");
  event.set_message("held by alice");
  RemovePrivate(event);
  EXPECT_EQ(event.message(), "held by alice");
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
