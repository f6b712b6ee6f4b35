#include "worker/rank/world_communicator.h"

#include <string>
#include <utility>

#include "common/proto_time.h"
#include "common/status.h"
#include "worker/collectives/factory.h"

namespace muster::rank {
namespace {

collectives::WorldOptions OptionsFor(const v1::World& world, uint32_t rank,
                                     absl::string_view backend, collectives::KeyStore* store) {
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
  return options;
}

}  // namespace

absl::StatusOr<RankCommunicators> ConnectRanks(const v1::World& world, uint32_t rank,
                                               absl::string_view backend, bool with_node,
                                               collectives::KeyStore* store) {
  const collectives::WorldOptions options = OptionsFor(world, rank, backend, store);
  RankCommunicators communicators;
  ASSIGN_OR_RETURN(communicators.world, collectives::CreateWorldCommunicator(options));
  if (with_node) {
    ASSIGN_OR_RETURN(communicators.node, collectives::CreateNodeCommunicator(options));
  }
  return communicators;
}

}  // namespace muster::rank
