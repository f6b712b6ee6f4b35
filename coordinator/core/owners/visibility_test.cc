#include "coordinator/core/owners/visibility.h"

#include "gtest/gtest.h"

namespace muster::core {
namespace {

const Actor kAlice{"alice", false};
const Actor kBob{"bob", false};
const Actor kAdmin{"root", true};

v1::Job MakeJob() {
  v1::Job job;
  job.set_job_id("job-x7k2q");
  job.set_owner("alice");
  (*job.mutable_spec()->mutable_env())["TOKEN"] = "hunter2";
  job.mutable_first_failure()->set_message("exited with code 1");
  job.mutable_first_failure()->mutable_exit()->set_exit_code(1);
  job.mutable_first_failure()->mutable_exit()->set_stderr_tail("hunter2 is wrong");
  *job.add_past_failures() = job.first_failure();
  *job.add_ranks()->mutable_exit() = job.first_failure().exit();
  return job;
}

TEST(HidePrivate, LeavesEverythingToOwnerAndAdmins) {
  for (const Actor& actor : {kAlice, kAdmin}) {
    v1::Job job = MakeJob();
    HidePrivate(actor, job);
    EXPECT_EQ(job.SerializeAsString(), MakeJob().SerializeAsString());
  }
}

TEST(HidePrivate, RemovesEnvironmentAndLogsFromOthers) {
  v1::Job job = MakeJob();
  HidePrivate(kBob, job);
  EXPECT_TRUE(job.environment_hidden());
  ASSERT_EQ(job.spec().env().count("TOKEN"), 1u);
  EXPECT_EQ(job.spec().env().at("TOKEN"), "");
  EXPECT_EQ(job.SerializeAsString().find("hunter2"), std::string::npos);
  EXPECT_EQ(job.first_failure().message(), "exited with code 1");
  EXPECT_EQ(job.ranks(0).exit().exit_code(), 1);
}

TEST(HidePrivate, ReportsNoHiddenEnvironmentIfThereIsNone) {
  v1::Job job = MakeJob();
  job.mutable_spec()->clear_env();
  HidePrivate(kBob, job);
  EXPECT_FALSE(job.environment_hidden());
}

TEST(HidePrivate, LeavesJobsWithoutOwnerOpen) {
  v1::Job job = MakeJob();
  job.clear_owner();
  HidePrivate(kBob, job);
  EXPECT_EQ(job.spec().env().at("TOKEN"), "hunter2");
}

TEST(VisibleTo, CopiesOnlyWhatHasToBeHidden) {
  const auto job = std::make_shared<const v1::Job>(MakeJob());
  EXPECT_EQ(VisibleTo(kAlice, job), job);
  const auto visible = VisibleTo(kBob, job);
  EXPECT_NE(visible, job);
  EXPECT_TRUE(visible->environment_hidden());
  EXPECT_FALSE(job->environment_hidden());
}

}  // namespace
}  // namespace muster::core
