#include "coordinator/core/rendezvous/messages.h"

#include <algorithm>

namespace muster::core {

v1::CoordinatorMessage MakeWorld(const Job& job, uint32_t node_rank, const Agreement& agreement) {
  const GenerationState& generation = *job.generation;
  const v1::NodePlacement& node = generation.placement(node_rank);
  v1::CoordinatorMessage message;
  v1::World& world = *message.mutable_world();
  world.set_job_id(job.status.job_id());
  world.set_generation(generation.record.generation());
  world.set_world_size(generation.record.world_size());
  world.set_node_count(generation.record.nodes_size());
  world.set_node_rank(node_rank);
  for (const v1::RankRecord& record : node.ranks()) {
    v1::RankPlacement& rank = *world.add_ranks();
    rank.set_rank(record.rank());
    rank.set_local_rank(record.local_rank());
    *rank.mutable_slots() = record.slots();
  }
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
  if (agreement.resume_rank.has_value()) world.set_resume_rank(*agreement.resume_rank);
  world.set_resume_step(agreement.resume_step);
  world.set_resume_job_id(agreement.resume_job_id);
  for (const uint32_t rank : agreement.memory_ranks) world.add_resume_memory_ranks(rank);
  world.set_resume_generation(agreement.resume_generation);
  world.set_canonical_layout(agreement.canonical_layout);
  *world.mutable_failure_timeout() = job.spec().failure_timeout();
  return message;
}

v1::CoordinatorMessage MakeKeyValue(const std::string& job, uint64_t generation,
                                    const std::string& key, absl::string_view value,
                                    const absl::Status& status) {
  v1::CoordinatorMessage message;
  v1::KeyValue& answer = *message.mutable_key_value();
  answer.set_job_id(job);
  answer.set_generation(generation);
  answer.set_key(key);
  answer.set_value(std::string(value));
  answer.set_code(static_cast<int>(status.code()));
  answer.set_message(std::string(status.message()));
  return message;
}

v1::CoordinatorMessage MakeRelease(const std::string& job, uint64_t generation,
                                   const v1::BarrierId& barrier, const absl::Status& status) {
  v1::CoordinatorMessage message;
  v1::ReleaseBarrier& release = *message.mutable_release_barrier();
  release.set_job_id(job);
  release.set_generation(generation);
  *release.mutable_barrier() = barrier;
  release.set_code(static_cast<int>(status.code()));
  release.set_message(std::string(status.message()));
  return message;
}

}  // namespace muster::core
