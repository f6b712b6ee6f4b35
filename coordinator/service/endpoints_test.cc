// The coordinator's HTTP endpoints, with a worker and a job in the cluster.
#include <nlohmann/json.hpp>

#include "common/http/http_get.h"
#include "common/metrics/differences.h"
#include "coordinator/service/coordinator_fixture.h"
#include "coordinator/service/metric_families.h"
#include "gmock/gmock.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EndpointsTest : public CoordinatorFixture {
 protected:
  http::GetResult MustGet(absl::string_view target) {
    auto result = http::Get(coordinator_->http_address(), target);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(http::GetResult());
  }
  void AwaitBody(absl::string_view target, const std::string& words) {
    AwaitCondition([&] { return MustGet(target).body.find(words) != std::string::npos; });
  }
};

TEST_F(EndpointsTest, ServesEmptyCluster) {
  EXPECT_EQ(MustGet("/sd").body, "[]\n");
  EXPECT_THAT(MustGet("/sd").headers, HasSubstr("application/json"));
  EXPECT_EQ(MustGet("/livez").body, "ok\n");
  EXPECT_EQ(MustGet("/readyz?verbose").body, "[+]core ok\n[+]serving ok\nok\n");
  EXPECT_THAT(MustGet("/version").body, HasSubstr("software_version"));
  EXPECT_THAT(MustGet("/").body, HasSubstr("No worker has connected yet"));
  EXPECT_EQ(MustGet("/favicon.ico").status, 404);
}

TEST_F(EndpointsTest, FollowsClusterChanges) {
  const auto worker = Connect("node-1");
  const std::string id = Submit("hello");
  AwaitBody("/", id);
  EXPECT_THAT(MustGet("/job?id=" + id).body, HasSubstr("<h1>" + id + "</h1>"));
  EXPECT_EQ(MustGet("/job?id=nobody").status, 404);
  AwaitBody("/metrics", "muster_jobs{state=\"starting\"} 1");
  const std::string metrics = MustGet("/metrics").body;
  for (const char* words :
       {"muster_build_info{", "muster_nodes{state=\"ready\"} 1", "muster_slots 2\n",
        "muster_slots_allocated 2\n", "muster_jobs_submitted_total 1\n",
        "muster_node_heartbeat_age_seconds{node=\"node-1\"}", "muster_event_loop_lag_seconds_count",
        "grpc_method=\"SubmitJob\"", "muster_queue_wait_seconds_count 1"}) {
    EXPECT_THAT(metrics, HasSubstr(words));
  }
  EXPECT_THAT(metrics::UnknownFamilies(metrics, kCoordinatorFamilies), IsEmpty());
  EXPECT_EQ(
      nlohmann::json::parse(MustGet("/sd").body),
      nlohmann::json::parse(R"([{"targets": ["127.0.0.1:9100"], "labels": {"node": "node-1"}}])"));
}

TEST_F(EndpointsTest, ShowsRecoveredState) {
  const std::string id = Submit("hello");
  StopCoordinator();
  StartCoordinator();
  AwaitBody("/", id);
}

}  // namespace
}  // namespace muster::service
