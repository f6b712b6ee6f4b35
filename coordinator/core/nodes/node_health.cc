// NodeTable: nodes that fail to launch ranks, and slots of ranks that cannot be killed.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "coordinator/core/nodes/node_table.h"

namespace muster::core {
namespace {

constexpr uint32_t kTolerated = 1;  // failed launches in a row without consequence
constexpr absl::Duration kFirstCoolDown = absl::Seconds(30);
constexpr absl::Duration kLongestCoolDown = absl::Minutes(10);

absl::Duration CoolDownAfter(uint32_t failed_launches) {
  if (failed_launches <= kTolerated) return absl::ZeroDuration();
  const uint32_t doublings = std::min(failed_launches - kTolerated - 1, 16u);
  return std::min(kLongestCoolDown, kFirstCoolDown * (int64_t{1} << doublings));
}

TimerKey CoolDownOf(const Node& node) { return {TimerKey::Kind::kCoolDown, node.record.name()}; }

}  // namespace

void NodeTable::NoteLaunchFailure(const NodeName& name, const std::string& why) {
  Node& node = nodes_.at(name);
  const uint32_t failed = node.record.failed_launches() + 1;
  node.record.set_failed_launches(failed);
  changed_.insert(name);
  const absl::Duration cool_down = CoolDownAfter(failed);
  if (cool_down == absl::ZeroDuration()) return;
  *node.record.mutable_cool_down_until() = ToProto(context_.now.wall + cool_down);
  ArmCoolDown(node);
  ++version_;
  context_.Log(absl::StrCat("node ", name.value(), " failed to launch ranks ", failed,
                            " times in a row; no ranks will be placed on it for ",
                            absl::FormatDuration(cool_down), ": ", why));
}

void NodeTable::NoteLaunchSuccess(const NodeName& name) {
  if (ForgetFailedLaunches(nodes_.at(name))) ++version_;
}

void NodeTable::EndCoolDown(const NodeName& name) {
  const auto entry = nodes_.find(name);
  if (entry == nodes_.end() || !entry->second.IsCoolingDown()) return;
  entry->second.record.clear_cool_down_until();
  changed_.insert(name);
  ++version_;
}

void NodeTable::ArmCoolDown(const Node& node) {
  const absl::Duration left = FromProto(node.record.cool_down_until()) - context_.now.wall;
  context_.timers.Set(CoolDownOf(node), context_.now.steady + std::max(left, absl::ZeroDuration()));
}

bool NodeTable::ForgetFailedLaunches(Node& node) {
  if (node.record.failed_launches() == 0) return false;
  node.record.clear_failed_launches();
  node.record.clear_cool_down_until();
  context_.timers.Cancel(CoolDownOf(node));
  changed_.insert(node.name());
  return true;
}

void NodeTable::SetUnkillable(const NodeName& name, const RankRef& rank, int64_t pid) {
  Node& node = nodes_.at(name);
  std::erase_if(node.unkillable, [&rank](const UnkillableRank& held) { return held.rank == rank; });
  node.unkillable.push_back({rank, pid});
  node.leftovers[{rank.job, rank.generation}].insert(rank.rank);
  ++version_;
}

}  // namespace muster::core
