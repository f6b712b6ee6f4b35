#include "coordinator/core/rendezvous/agreement.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::core {
namespace {

void SetPlacement(const v1::RankRecord& record, v1::RankPlacement& placement) {
  placement.set_rank(record.rank());
  placement.set_local_rank(record.local_rank());
  *placement.mutable_slots() = record.slots();
}

std::string TextOf(const v1::FingerprintEntry& entry) {
  return absl::StrCat(entry.name(), " ", entry.value());
}

// Null where the rank says nothing of it.
const v1::FingerprintEntry* FindEntry(const v1::JoinInfo& join, const std::string& name) {
  const auto& entries = join.fingerprint();
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&name](const auto& entry) { return entry.name() == name; });
  return found == entries.end() ? nullptr : &*found;
}

// Entries of `one` that `other` does not have in the same words.
std::vector<std::string> Differing(const v1::JoinInfo& one, const v1::JoinInfo& other) {
  std::vector<std::string> texts;
  for (const v1::FingerprintEntry& entry : one.fingerprint()) {
    const v1::FingerprintEntry* const same = FindEntry(other, entry.name());
    if (same == nullptr || same->value() != entry.value()) texts.push_back(TextOf(entry));
  }
  for (const v1::FingerprintEntry& entry : other.fingerprint()) {
    if (FindEntry(one, entry.name()) == nullptr) {
      texts.push_back(absl::StrCat("no ", entry.name()));
    }
  }
  return texts;
}

}  // namespace

std::optional<Mismatch> FindMismatch(const GenerationState& generation) {
  const RankState& first = generation.ranks.front();
  const auto line = [&generation](const RankState& rank, const RankState& other) {
    return absl::StrCat("node ", generation.placement(rank.node_rank).node(), " (rank ", rank.rank,
                        "): ", absl::StrJoin(Differing(*rank.join, *other.join), "; "));
  };
  for (const RankState& rank : generation.ranks) {
    if (Differing(*rank.join, *first.join).empty()) continue;
    return Mismatch{rank.rank, absl::StrCat(line(first, rank), "\n", line(rank, first))};
  }
  return std::nullopt;
}

std::optional<Agreement> Agree(const GenerationState& generation) {
  Agreement agreement;
  for (const RankState& rank : generation.ranks) {
    if (!rank.join.has_value()) return std::nullopt;
    if (rank.join->layout_digest() != generation.ranks.front().join->layout_digest()) {
      agreement.canonical_layout = true;
    }
    if (!rank.join->has_checkpoint()) continue;
    if (!agreement.resume_rank.has_value() ||
        rank.join->checkpoint_step() > agreement.resume_step) {
      agreement.resume_rank = rank.rank;
      agreement.resume_step = rank.join->checkpoint_step();
    }
  }
  return agreement;
}

std::string Describe(const Agreement& agreement) {
  std::string text = agreement.resume_rank.has_value()
                         ? absl::StrCat("rank ", *agreement.resume_rank,
                                        " reads the checkpoint of step ", agreement.resume_step)
                         : "nobody has a checkpoint";
  if (agreement.canonical_layout) absl::StrAppend(&text, "; layouts differ, the canonical is used");
  return text;
}

v1::CoordinatorMessage MakeLaunch(const Job& job, uint32_t node_rank) {
  const GenerationState& generation = *job.generation;
  v1::CoordinatorMessage message;
  v1::Launch& launch = *message.mutable_launch();
  launch.set_job_id(job.job().job_id());
  launch.set_generation(generation.record.generation());
  *launch.mutable_spec() = job.job().spec();
  for (const v1::RankRecord& rank : generation.placement(node_rank).ranks()) {
    SetPlacement(rank, *launch.add_ranks());
  }
  launch.set_world_size(generation.record.world_size());
  launch.set_node_rank(node_rank);
  launch.set_node_count(generation.record.nodes_size());
  launch.set_restarts(job.job().restarts());
  return message;
}

v1::CoordinatorMessage MakeWorld(const Job& job, uint32_t node_rank) {
  const GenerationState& generation = *job.generation;
  const v1::NodePlacement& node = generation.placement(node_rank);
  v1::CoordinatorMessage message;
  v1::World& world = *message.mutable_world();
  world.set_job_id(job.job().job_id());
  world.set_generation(generation.record.generation());
  world.set_world_size(generation.record.world_size());
  world.set_node_count(generation.record.nodes_size());
  world.set_node_rank(node_rank);
  for (const v1::RankRecord& rank : node.ranks()) SetPlacement(rank, *world.add_ranks());
  world.set_master_address(generation.placement(0).address());
  world.set_node_address(node.address());
  const auto& nodes = generation.record.nodes();
  const bool equal = std::all_of(nodes.begin(), nodes.end(), [&nodes](const auto& other) {
    return other.ranks_size() == nodes[0].ranks_size();
  });
  for (const v1::NodePlacement& other : nodes) {
    world.add_ranks_on_node(other.ranks_size());
    if (equal) break;
  }
  const Agreement& agreement = *generation.agreement;
  if (agreement.resume_rank.has_value()) world.set_resume_rank(*agreement.resume_rank);
  world.set_resume_step(agreement.resume_step);
  world.set_canonical_layout(agreement.canonical_layout);
  *world.mutable_failure_timeout() = job.job().spec().failure_timeout();
  return message;
}

}  // namespace muster::core
