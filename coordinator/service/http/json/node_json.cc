#include "coordinator/service/http/json/node_json.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/time/proto_time.h"
#include "coordinator/service/http/json/json_text.h"

namespace muster::service {
namespace {

double Seconds(const google::protobuf::Duration& duration) {
  return absl::ToDoubleSeconds(FromProto(duration));
}

std::string SlotJson(const v1::Slot& slot) {
  JsonObject json;
  json.AddRaw("index", absl::StrCat(slot.index()))
      .Add("kind", slot.kind())
      .Add("device", slot.device().name())
      .Add("memory", uint64_t{slot.device().memory_bytes()})
      .Add("job", slot.job_id())
      .Add("unavailable", slot.unavailable())
      .Add("returning", slot.returning());
  if (!slot.job_id().empty()) json.AddRaw("rank", absl::StrCat(slot.rank()));
  return json.Take();
}

// "2 checks succeeded", or what failed; empty without a self-test.
std::string SelfTestText(const v1::Node& node) {
  if (!node.has_self_test()) return "";
  if (node.self_test().running()) return "running";
  std::vector<std::string> failures;
  for (const v1::SelfTest::Check& check : node.self_test().checks()) {
    if (!check.failure().empty()) failures.push_back(check.name() + ": " + check.failure());
  }
  if (!failures.empty()) return absl::StrCat("failed: ", absl::StrJoin(failures, "; "));
  return absl::StrCat(node.self_test().checks_size(), " checks succeeded");
}

}  // namespace

std::string NodeJson(const v1::Node& node) {
  const std::string slots = absl::StrJoin(
      node.slots(), ",",
      [](std::string* out, const v1::Slot& slot) { absl::StrAppend(out, SlotJson(slot)); });
  const std::string driver = node.slots().empty() ? "" : node.slots(0).device().driver_version();
  JsonObject json;
  json.Add("name", node.name())
      .Add("state", absl::AsciiStrToLower(v1::NodeState_Name(node.state())))
      .Add("cordoned", node.cordoned())
      .Add("cordon_reason", node.cordon_reason())
      .Add("leaving", node.leaving())
      .Add("conflict", node.conflict())
      .Add("address", node.address())
      .Add("metrics", node.metrics_address())
      .Add("version", node.software_version())
      .Add("driver", driver)
      .Add("cpus", node.cpu_count())
      .Add("memory", uint64_t{node.memory_bytes()})
      .Add("failed_launches", node.failed_launches())
      .Add("launch_failure", node.launch_failure())
      .Add("cool_down", Seconds(node.cool_down()), 4)
      .Add("self_test", SelfTestText(node))
      .AddRaw("slots", absl::StrCat("[", slots, "]"));
  // Changes with every heartbeat; the page needs it only when heartbeats are missing.
  if (node.state() != v1::READY) json.Add("heartbeat_age", Seconds(node.heartbeat_age()), 3);
  return json.Take();
}

}  // namespace muster::service
