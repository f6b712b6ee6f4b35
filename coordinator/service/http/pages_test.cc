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
