#include "coordinator/service/http/discovery.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace muster::service {
namespace {

Snapshot MakeSnapshot() {
  Snapshot snapshot;
  v1::Node node;
  node.set_name("node-1");
  node.set_state(v1::READY);
  node.set_address("10.0.0.7");
  node.set_metrics_address("10.0.0.7:9100");
  node.add_slots()->set_job_id("job-abcde");
  node.add_slots();
  snapshot.nodes.push_back(node);
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

}  // namespace
}  // namespace muster::service
