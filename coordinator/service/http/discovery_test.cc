#include "coordinator/service/http/pages.h"

#include <nlohmann/json.hpp>

#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Time kNow = {SteadyTime(absl::Hours(1)), absl::FromUnixSeconds(1700000000)};

Snapshot MakeSnapshot() {
  Snapshot snapshot;
  snapshot.taken = kNow;
  v1::Node node;
  node.set_name("node-1");
  node.set_state(v1::READY);
  node.set_address("10.0.0.7");
  node.set_metrics_address("10.0.0.7:9100");
  node.add_slots()->set_job_id("job-abcde");
  node.add_slots();
  snapshot.nodes.push_back(node);
  auto job = std::make_shared<v1::Job>();
  job->set_job_id("job-abcde");
  job->set_state(v1::RUNNING);
  job->set_message("<script>alert(1)</script>");
  *job->mutable_submit_time() = ToProto(kNow.wall - absl::Seconds(30));
  job->mutable_progress()->set_step(50);
  job->mutable_progress()->set_total_steps(200);
  snapshot.jobs.push_back(job);
  return snapshot;
}

TEST(DiscoveryTest, EmptyClusterGivesEmptyList) { EXPECT_EQ(DiscoveryJson(Snapshot()), "[]\n"); }

TEST(DiscoveryTest, OneTargetPerWorkerWithMetrics) {
  Snapshot snapshot = MakeSnapshot();
  v1::Node hostless = snapshot.nodes[0];
  hostless.set_name("node-2");
  hostless.set_metrics_address(":9200");
  snapshot.nodes.push_back(hostless);
  hostless.set_name("node-3");
  hostless.set_address("fe80::1");
  snapshot.nodes.push_back(hostless);
  hostless.set_name("node-4");
  hostless.clear_metrics_address();
  snapshot.nodes.push_back(hostless);
  const nlohmann::json expected = nlohmann::json::parse(R"([
    {"targets": ["10.0.0.7:9100"], "labels": {"node": "node-1"}},
    {"targets": ["10.0.0.7:9200"], "labels": {"node": "node-2"}},
    {"targets": ["[fe80::1]:9200"], "labels": {"node": "node-3"}}])");
  EXPECT_EQ(nlohmann::json::parse(DiscoveryJson(snapshot)), expected);
}

TEST(StatusPageTest, ShowsNodesAndJobs) {
  const std::string page = StatusPage(MakeSnapshot(), kNow);
  EXPECT_THAT(page, HasSubstr("node-1"));
  EXPECT_THAT(page, HasSubstr("1 of 2"));
  EXPECT_THAT(page, HasSubstr("job-abcde"));
  EXPECT_THAT(page, HasSubstr("RUNNING"));
  EXPECT_THAT(page, HasSubstr("step 50 of 200"));
  EXPECT_THAT(page, HasSubstr("http-equiv=\"refresh\""));
}

// Names, progress and reasons share the width that the other columns, which never wrap, leave.
TEST(StatusPageTest, LongTextWraps) {
  const std::string page = StatusPage(MakeSnapshot(), kNow);
  EXPECT_THAT(page, HasSubstr("td.text{white-space:pre-wrap;overflow-wrap:anywhere"));
  EXPECT_THAT(page, HasSubstr("<td class=\"text\"><a href="));
  EXPECT_THAT(page, HasSubstr("<td class=\"text\"> <meter"));
  EXPECT_THAT(page, HasSubstr("<td class=\"text\">: &lt;script"));
  EXPECT_THAT(page, HasSubstr("white-space:nowrap}"));
}

TEST(StatusPageTest, ShortJobHasADuration) {
  Snapshot snapshot = MakeSnapshot();
  v1::Job job = *snapshot.jobs[0];
  *job.mutable_start_time() = ToProto(kNow.wall - absl::Seconds(10));
  *job.mutable_finish_time() = ToProto(kNow.wall - absl::Milliseconds(9900));
  snapshot.jobs[0] = std::make_shared<v1::Job>(job);
  EXPECT_THAT(StatusPage(snapshot, kNow), HasSubstr("<td>0s<td>30s<td"));
}

TEST(StatusPageTest, CommandsShowOnlyWhatTheyReport) {
  EXPECT_THAT(StatusPage(MakeSnapshot(), kNow), Not(HasSubstr("loss")));
}

TEST(StatusPageTest, LostNodesHaveNoFreeSlots) {
  Snapshot snapshot = MakeSnapshot();
  snapshot.nodes[0].set_state(v1::LOST);
  EXPECT_THAT(StatusPage(snapshot, kNow), HasSubstr("<td>0 of 2<td>"));
}

TEST(StatusPageTest, ShowsNodesThatCoolDownAndJobsThatDoNotFit) {
  Snapshot snapshot = MakeSnapshot();
  snapshot.nodes[0].set_failed_launches(2);
  *snapshot.nodes[0].mutable_cool_down() = ToProto(absl::Seconds(30));
  v1::Job job = *snapshot.jobs[0];
  job.set_unplaceable("needs 5 nodes");
  snapshot.jobs[0] = std::make_shared<v1::Job>(job);
  const std::string page = StatusPage(snapshot, {kNow.steady + absl::Seconds(5), kNow.wall});
  EXPECT_THAT(page, HasSubstr("cooling down for 25s after 2 failed launches"));
  EXPECT_THAT(page, HasSubstr("needs 5 nodes"));
}

TEST(JobPageTest, ShowsTheJobThatARowLinksTo) {
  Snapshot snapshot = MakeSnapshot();
  EXPECT_THAT(StatusPage(snapshot, kNow), HasSubstr("<a href=\"/job?id=job-abcde\">job-abcde</a>"));
  v1::Job job = *snapshot.jobs[0];
  job.set_owner("<ada>");
  job.mutable_spec()->add_command("--token=secret");
  *job.mutable_start_time() = ToProto(kNow.wall - absl::Seconds(20));
  *job.mutable_finish_time() = ToProto(kNow.wall - absl::Seconds(10));
  job.mutable_checkpoint()->set_dir("/c");
  job.mutable_checkpoint()->set_name("step-00000060.g2");
  job.mutable_checkpoint()->set_failures(1);
  job.mutable_checkpoint()->set_failed_step(80);
  job.mutable_checkpoint()->set_failure("disk <full>");
  snapshot.jobs[0] = std::make_shared<v1::Job>(job);
  const std::optional<std::string> page = JobPage(snapshot, "id=job-abcde", kNow);
  ASSERT_TRUE(page.has_value());
  EXPECT_THAT(*page, HasSubstr("<h1>job-abcde</h1>"));
  EXPECT_THAT(*page, HasSubstr("<th>Owner<td class=\"text\">&lt;ada&gt;"));
  EXPECT_THAT(*page, HasSubstr("<th>Duration<td class=\"text\">10s"));
  EXPECT_THAT(*page, HasSubstr("<th>Checkpoint<td class=\"text\">/c/step-00000060.g2 (1 failed in "
                               "this generation, the latest at step 80: disk &lt;full&gt;)"));
  EXPECT_THAT(*page, HasSubstr("muster describe job-abcde"));
  EXPECT_THAT(*page, Not(HasSubstr("<script>")));
  EXPECT_THAT(*page, Not(HasSubstr("secret")));
  for (const char* query : {"", "id=", "id=job-abcd", "job-abcde"}) {
    EXPECT_FALSE(JobPage(snapshot, query, kNow).has_value()) << query;
  }
}

TEST(StatusPageTest, EscapesUserText) {
  const std::string page = StatusPage(MakeSnapshot(), kNow);
  EXPECT_THAT(page, Not(HasSubstr("<script>")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
}

TEST(StatusPageTest, EmptyClusterShowsNextStep) {
  const std::string page = StatusPage(Snapshot(), kNow);
  EXPECT_THAT(page, HasSubstr("No worker has connected yet"));
  EXPECT_THAT(page, HasSubstr("muster submit"));
}

}  // namespace
}  // namespace muster::service
