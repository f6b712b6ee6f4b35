#include "coordinator/core/nodes/fence.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

// The most sets that are kept because a node may still use an older one. A node that uses a set
// which was dropped must confirm the end of its ranks.
constexpr size_t kSets = 64;

}  // namespace

// ------------------------------------------------------------------------------------------------
// the fence set

void Fence::Restore(const v1::FenceRecord& record) {
  for (const v1::FenceRecord::Set& stored : record.sets()) {
    v1::FenceSet& set = sets_.emplace_back();
    set.set_id(stored.id());
    *set.mutable_nodes() = stored.nodes();
  }
}

bool Fence::IsMember(const Node& node) const {
  if (node.state == v1::READY) return node.hello.keeps_bans() && node.conflict.empty();
  // A silent node stays a member until it is lost: a cut that may be short changes no set.
  if (node.state != v1::SUSPECT || sets_.empty()) return false;
  const auto& members = sets_.back().nodes();
  return std::find(members.begin(), members.end(), node.record.name()) != members.end();
}

void Fence::AdaptSet() {
  if (nodes_.version() == node_version_) return;
  node_version_ = nodes_.version();
  v1::FenceSet set;
  if (nodes_.all().size() <= kMembers) {
    for (const auto& [name, node] : nodes_.all()) {
      if (IsMember(node)) set.add_nodes(name.value());
    }
  }
  const bool same = sets_.empty()
                        ? set.nodes().empty()
                        : std::equal(set.nodes().begin(), set.nodes().end(),
                                     sets_.back().nodes().begin(), sets_.back().nodes().end());
  if (same) return;
  // Different in each process on a store, and in those on copies of it.
  set.set_id(context_.options.incarnation.value() + next_id_++);
  sets_.push_back(std::move(set));
  if (sets_.size() > kSets) sets_.erase(sets_.begin());
  DropUnusedSets();
  v1::FenceRecord record;
  for (const v1::FenceSet& kept : sets_) {
    v1::FenceRecord::Set& stored = *record.add_sets();
    stored.set_id(kept.id());
    *stored.mutable_nodes() = kept.nodes();
  }
  context_.effects.writes.push_back(Put(record));
}

void Fence::DropUnusedSets() {
  size_t oldest = sets_.empty() ? 0 : sets_.size() - 1;
  for (const auto& [name, node] : nodes_.all()) {
    if (node.state == v1::LOST) continue;
    const auto used = used_.find(name);
    size_t index = 0;
    if (used != used_.end()) {
      while (index < sets_.size() && sets_[index].id() != used->second) ++index;
      if (index == sets_.size()) continue;  // unknown anyway
    }
    oldest = std::min(oldest, index);
  }
  sets_.erase(sets_.begin(), sets_.begin() + static_cast<std::ptrdiff_t>(oldest));
}

void Fence::OnOpened(const Node& node) {
  const NodeName name = node.name();
  for (auto awaited = awaited_.begin(); awaited != awaited_.end();) {
    if (awaited->first.node == name) {
      awaited = awaited_.erase(awaited);
      bans_changed_ = true;
    } else {
      // A worker without a set has lost its promises.
      if (node.hello.fence_set() == 0) awaited->second.kept.erase(name);
      ++awaited;
    }
  }
  used_[name] = node.hello.fence_set();
  sent_[name] = node.hello.fence_set();
  if (node.hello.keeps_bans()) SendBans(node);
  node_version_ = 0;
}

void Fence::OnSetKept(const NodeName& node, uint64_t id) { used_[node] = id; }

void Fence::Update() {
  const uint64_t version = node_version_;
  AdaptSet();
  const bool nodes_changed = version != node_version_;
  if (bans_changed_) ++round_;
  if (!nodes_changed && !bans_changed_) return;
  for (const auto& [name, node] : nodes_.all()) {
    if (!node.session.has_value() || !node.hello.keeps_bans()) continue;
    // Bans first: a worker that receives its first set can vouch.
    if (bans_changed_) SendBans(node);
    if (sets_.empty() || sent_[name] == sets_.back().id()) continue;
    sent_[name] = sets_.back().id();
    v1::CoordinatorMessage message;
    *message.mutable_fence_set() = sets_.back();
    nodes_.Send(node, std::move(message));
  }
  bans_changed_ = false;
}

void Fence::SendBans(const Node& node) const {
  v1::CoordinatorMessage message;
  v1::Bans& bans = *message.mutable_bans();
  bans.set_round(round_);
  for (const auto& [ranks, awaited] : awaited_) {
    if (!awaited.confirmation.empty()) continue;
    v1::Ban& ban = *bans.add_bans();
    ban.set_node_name(ranks.node.value());
    ban.set_job_id(ranks.job.value());
    ban.set_generation(ranks.generation.value());
    *ban.mutable_lease() = ToProto(awaited.lease);
  }
  nodes_.Send(node, std::move(message));
}

// ------------------------------------------------------------------------------------------------
// ranks of silent nodes

std::optional<std::vector<const v1::FenceSet*>> Fence::SetsOf(const NodeName& node) const {
  size_t first = 0;
  const auto used = used_.find(node);
  // Nodes that have not opened a session since the coordinator started use any of the sets, which
  // include those that they have been sent.
  if (used != used_.end() && used->second != 0) {
    while (first < sets_.size() && sets_[first].id() != used->second) ++first;
    if (first == sets_.size()) return std::nullopt;
  }
  std::vector<const v1::FenceSet*> sets;
  for (; first < sets_.size(); ++first) sets.push_back(&sets_[first]);
  return sets;
}

bool Fence::HasBanned(const std::string& member, const Awaited& awaited) const {
  const auto ban = awaited.kept.find(NodeName(member));
  return ban != awaited.kept.end() && ban->second <= context_.now.steady;
}

bool Fence::HaveHalfBanned(const v1::FenceSet& set, const Awaited& awaited) const {
  const auto banned =
      std::count_if(set.nodes().begin(), set.nodes().end(),
                    [&](const std::string& member) { return HasBanned(member, awaited); });
  return 2 * banned >= set.nodes_size();
}

bool Fence::HaveEnded(const Ranks& ranks, absl::Duration lease) {
  const auto [entry, is_new] = awaited_.try_emplace(ranks);
  Awaited& awaited = entry->second;
  if (is_new) {
    awaited.since = context_.now.steady;
    awaited.lease = lease;
    awaited.round = round_ + 1;
    bans_changed_ = true;
  }
  const auto sets = SetsOf(ranks.node);
  if (!sets.has_value()) return false;
  return std::all_of(sets->begin(), sets->end(),
                     [&](const v1::FenceSet* set) { return HaveHalfBanned(*set, awaited); });
}

void Fence::AwaitConfirmation(const Ranks& ranks, std::string why) {
  const auto [entry, is_new] = awaited_.try_emplace(ranks);
  if (is_new) entry->second.since = context_.now.steady;
  entry->second.confirmation = std::move(why);
}

std::set<NodeName> Fence::OnBansKept(const NodeName& member, const v1::BansKept& kept) {
  std::set<NodeName> nodes;
  for (const v1::Ban& ban : kept.bans()) {
    const auto entry = awaited_.find(
        {NodeName(ban.node_name()), JobId(ban.job_id()), Generation(ban.generation())});
    if (entry == awaited_.end() || kept.round() < entry->second.round) continue;
    // No voucher is for longer than the lease.
    const absl::Duration left =
        std::clamp(FromProto(ban.voucher_left()), absl::ZeroDuration(), entry->second.lease);
    entry->second.kept[member] = context_.now.steady + left;
    nodes.insert(entry->first.node);
  }
  return nodes;
}

SteadyTime Fence::NextEnd(const NodeName& node) const {
  SteadyTime next = SteadyTime::Infinite();
  for (const auto& [ranks, awaited] : awaited_) {
    if (ranks.node != node) continue;
    for (const auto& [member, end] : awaited.kept) {
      if (end > context_.now.steady) next = std::min(next, end);
    }
  }
  return next;
}

void Fence::Forget(const Ranks& ranks) {
  if (awaited_.erase(ranks) != 0) bans_changed_ = true;
}

bool Fence::Awaits(const JobId& job) const {
  return std::any_of(awaited_.begin(), awaited_.end(),
                     [&job](const auto& entry) { return entry.first.job == job; });
}

std::vector<v1::Wait> Fence::Waits(const JobId& job) const {
  std::vector<v1::Wait> waits;
  for (const auto& [ranks, awaited] : awaited_) {
    if (ranks.job != job) continue;
    v1::Wait& wait = waits.emplace_back();
    wait.set_what(absl::StrCat("the end of its ranks on ", ranks.node.value()));
    *wait.mutable_since() = ToProto(context_.now.steady - awaited.since);
    v1::WaitedFor& node = *wait.add_missing();
    node.set_node(ranks.node.value());
    const std::string remedy =
        absl::StrCat("reconnects, or `muster node lost ", ranks.node.value(),
                     " --confirm` if its machine is off or its ranks have ended");
    if (!awaited.confirmation.empty()) {
      node.set_reason(absl::StrCat(awaited.confirmation, "; the job waits until it ", remedy));
      continue;
    }
    node.set_reason(absl::StrCat(
        "is silent, and its ranks may run while other nodes vouch for them; the job waits until "
        "half of the nodes have banned them, until it ",
        remedy));
    const auto sets = SetsOf(ranks.node);
    std::set<std::string> missing;
    for (const v1::FenceSet* set : sets.value_or(std::vector<const v1::FenceSet*>())) {
      if (HaveHalfBanned(*set, awaited)) continue;
      for (const std::string& member : set->nodes()) {
        if (member != ranks.node.value() && !HasBanned(member, awaited)) missing.insert(member);
      }
    }
    for (const std::string& member : missing) {
      const bool banned = awaited.kept.count(NodeName(member)) != 0;
      v1::WaitedFor& waited = *wait.add_missing();
      waited.set_node(member);
      waited.set_reason(banned ? "its voucher has not ended" : "has not banned them");
    }
  }
  return waits;
}

}  // namespace muster::core
