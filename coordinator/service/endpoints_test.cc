// The coordinator's HTTP endpoints, with a worker and a job in the cluster.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/http/http_get.h"
#include "common/metrics/differences.h"
#include "coordinator/metric_families.h"
#include "coordinator/service/coordinator_fixture.h"
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
  EXPECT_THAT(MustGet("/").body, HasSubstr("<title>Muster</title>"));
  EXPECT_THAT(MustGet("/").headers, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(MustGet("/page/app.js").headers, HasSubstr("text/javascript"));
  EXPECT_EQ(MustGet("/favicon.ico").status, 404);
}

TEST_F(EndpointsTest, FollowsClusterChanges) {
  const auto worker = Connect("node-1");
  const std::string id = Submit("hello");
  AwaitBody("/metrics", "muster_jobs{state=\"starting\"} 1");
  const std::string metrics = MustGet("/metrics").body;
  for (const char* words :
       {"muster_build_info{", "muster_nodes{state=\"ready\"} 1", "muster_slots 2\n",
        "muster_slots_allocated 2\n", "muster_jobs_submitted_total 1\n",
        "muster_node_heartbeat_age_seconds{node=\"node-1\"}", "muster_event_loop_lag_seconds_count",
        "grpc_method=\"SubmitJob\"", "muster_queue_wait_seconds_count 1"}) {
    EXPECT_THAT(metrics, HasSubstr(words));
  }
  EXPECT_THAT(metrics::UnknownFamilies(metrics, AllCoordinatorFamilies()), IsEmpty());
  EXPECT_EQ(
      nlohmann::json::parse(MustGet("/sd").body),
      nlohmann::json::parse(R"([{"targets": ["127.0.0.1:9100"], "labels": {"node": "node-1"}}])"));
}

// Signs in as the admin whom the fixture's coordinator takes every token for, and reads
// server-sent events until one of this kind contains the words; returns its data.
class EventReader {
 public:
  EventReader(const Address& address, const std::string& target)
      : reader_([this, address, target] {
          http::Stream(address, target,
                       [this](absl::string_view bytes) {
                         absl::MutexLock lock(&mutex_);
                         text_.append(bytes.data(), bytes.size());
                         return !done_;
                       },
                       {"Authorization: Bearer any"})
              .IgnoreError();
        }) {}
  ~EventReader() {
    {
      absl::MutexLock lock(&mutex_);
      done_ = true;
    }
    reader_.join();
  }

  nlohmann::json Await(const std::string& event, const std::string& words) {
    nlohmann::json found;
    const auto contains = [&] {
      mutex_.AssertReaderHeld();
      for (const absl::string_view block : absl::StrSplit(text_, "\n\n")) {
        // The first block also has the head of the response.
        absl::string_view data = block.substr(std::min(block.find("event: "), block.size()));
        if (!absl::ConsumePrefix(&data, "event: " + event + "\ndata: ")) continue;
        if (!absl::StrContains(data, words)) continue;
        found = nlohmann::json::parse(data, nullptr, /*allow_exceptions=*/false);
        if (!found.is_discarded()) return true;
      }
      return false;
    };
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&contains), absl::Seconds(20)))
        << "no event " << event << " with " << words << " in " << text_;
    return found;
  }

 private:
  absl::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reader_;
};

TEST_F(EndpointsTest, OverviewFollowsJobsAndNodes) {
  EventReader page(coordinator_->http_address(), "/api/overview");
  page.Await("jobs", "\"total\":0");
  const auto worker = Connect("node-1");
  page.Await("nodes", "node-1");
  const std::string id = Submit("hello");
  const nlohmann::json jobs = page.Await("jobs", id);
  EXPECT_EQ(jobs["order"], nlohmann::json::array({id}));
  EXPECT_EQ(jobs["rows"][0]["id"], id);
  page.Await("nodes", "\"d\":\"##\"");
  Submit("second");
  page.Await("queue", "{\"node\":\"node-1\",\"reason\":\"0 of 2 slots free");
}

TEST_F(EndpointsTest, JobPageShowsStateEventsAndSpec) {
  const auto worker = Connect("node-1");
  const std::string id = Submit("hello");
  EventReader page(coordinator_->http_address(), "/api/job?id=hello");
  const nlohmann::json details = page.Await("job", "\"state\":\"starting\"");
  EXPECT_EQ(details["job"]["id"], id);
  EXPECT_EQ(details["ranks"]["total"], 2);
  EXPECT_EQ(page.Await("events", "Placed")["keep"], 0);
  EXPECT_EQ(page.Await("environment", "node-1")["count"], 1);
  EXPECT_EQ(page.Await("spec", "resources")["private"], true);
  EventReader none(coordinator_->http_address(), "/api/job?id=nobody");
  none.Await("problem", "nobody");
}

TEST_F(EndpointsTest, NodeAndComparisonPages) {
  const auto worker = Connect("node-1");
  const std::string id = Submit("hello");
  EventReader node(coordinator_->http_address(), "/api/node?name=node-1");
  EXPECT_EQ(node.Await("node", id)["slots"].size(), 2u);
  EventReader comparison(coordinator_->http_address(), "/api/comparison?jobs=" + id);
  EXPECT_EQ(comparison.Await("comparison", id)["total"], 1);
}

TEST_F(EndpointsTest, OtherSitesAreRefused) {
  const auto get = [&](const std::string& header) {
    return http::Get(coordinator_->http_address(), "/api/session", "GET", {header})->status;
  };
  EXPECT_EQ(get("X-Any: 1"), 200);
  EXPECT_EQ(get("Host: example.com"), 403);
  EXPECT_EQ(get("Sec-Fetch-Site: cross-site"), 403);
}

TEST_F(EndpointsTest, ShowsRecoveredState) {
  const std::string id = Submit("hello");
  StopCoordinator();
  StartCoordinator();
  EventReader page(coordinator_->http_address(), "/api/overview");
  page.Await("jobs", id);
}

}  // namespace
}  // namespace muster::service
