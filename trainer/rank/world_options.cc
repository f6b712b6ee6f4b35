#include "trainer/rank/world_options.h"

#include "common/time/proto_time.h"

namespace muster::rank {

collectives::WorldOptions WorldOptionsOf(const v1::World& world, uint32_t rank) {
  collectives::WorldOptions options;
  options.rank = rank;
  options.world_size = world.world_size();
  options.ranks_on_node.assign(world.ranks_on_node().begin(), world.ranks_on_node().end());
  options.interface_address = world.node_address();
  if (world.has_failure_timeout()) {
    options.connect_timeout = FromProto(world.failure_timeout());
    options.timeout = FromProto(world.failure_timeout());
  }
  return options;
}

}  // namespace muster::rank
