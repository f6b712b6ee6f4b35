#include "coordinator/core/rendezvous.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace muster::core {
namespace {

void SetPlacement(const v1::RankRecord& record, v1::RankPlacement& placement) {
  placement.set_rank(record.rank());
  placement.set_local_rank(record.local_rank());
  *placement.mutable_slots() = record.slots();
}

std::string ValueOf(const v1::JoinInfo& join, int index, const std::string& name) {
  if (index >= join.fingerprint_size() || join.fingerprint(index).name() != name) return "nothing";
  return join.fingerprint(index).value();
}

}  // namespace

std::optional<Mismatch> FindMismatch(const GenerationState& generation) {
  const auto where = [&generation](const RankState& rank) {
    return absl::StrCat("rank ", rank.rank, " (node ", generation.placement(rank.node_rank).node(),
                        ")");
  };
  const RankState& first = generation.ranks.front();
  for (const RankState& rank : generation.ranks) {
    const int entries = std::max(first.join->fingerprint_size(), rank.join->fingerprint_size());
    for (int i = 0; i < entries; ++i) {
      const v1::JoinInfo& named = i < first.join->fingerprint_size() ? *first.join : *rank.join;
      const std::string& name = named.fingerprint(i).name();
      const std::string expected = ValueOf(*first.join, i, name);
      const std::string found = ValueOf(*rank.join, i, name);
      if (found == expected) continue;
      return Mismatch{rank.rank,
                      absl::StrCat("the ranks' ", name, " differs: ", where(first), " has ",
                                   expected, "; ", where(rank), " has ", found)};
    }
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
