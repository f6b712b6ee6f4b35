#include "worker/rank/world_communicator.h"

#include <string>

#include "common/proto_time.h"
#include "worker/collectives/factory.h"

namespace muster::rank {

absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectWorld(
    const v1::World& world, uint32_t rank, absl::string_view backend,
    collectives::KeyStore* store) {
  collectives::WorldOptions options;
  if (!backend.empty()) options.backend = std::string(backend);
  options.rank = rank;
  options.world_size = world.world_size();
  options.ranks_on_node.assign(world.ranks_on_node().begin(), world.ranks_on_node().end());
  options.store = store;
  options.interface_address = world.node_address();
  if (world.has_failure_timeout()) {
    options.connect_timeout = FromProto(world.failure_timeout());
    options.timeout = FromProto(world.failure_timeout());
  }
  return collectives::CreateWorldCommunicator(options);
}

}  // namespace muster::rank
