#include "trainer/rank/world_communicator.h"

#include <algorithm>
#include <utility>

#include "collectives/factory.h"
#include "common/proto_time.h"
#include "common/status.h"

namespace muster::rank {
namespace {

// Of the ranks' processes.
collectives::WorldOptions OptionsFor(const v1::World& world, const ConnectOptions& connect) {
  collectives::WorldOptions options;
  // nccl connects GPUs; the processes have to agree on things of their own.
  if (!connect.backend.empty() && connect.backend != "nccl") options.backend = connect.backend;
  if (!connect.hierarchical.empty()) options.hierarchical = connect.hierarchical;
  options.rank = connect.rank;
  options.world_size = world.world_size();
  options.ranks_on_node.assign(world.ranks_on_node().begin(), world.ranks_on_node().end());
  options.store = connect.store;
  options.interface_address = world.node_address();
  options.cancelled = connect.cancelled;
  if (world.has_failure_timeout()) {
    options.connect_timeout = FromProto(world.failure_timeout());
    options.timeout = FromProto(world.failure_timeout());
  }
  return options;
}

}  // namespace

absl::StatusOr<RankCommunicators> ConnectRanks(const v1::World& world,
                                               const ConnectOptions& connect) {
  collectives::WorldOptions options = OptionsFor(world, connect);
  RankCommunicators communicators;
  ASSIGN_OR_RETURN(communicators.world, collectives::CreateWorldCommunicator(options));
  if (connect.with_node) {
    ASSIGN_OR_RETURN(communicators.node, collectives::CreateNodeCommunicator(options));
  }
  if (connect.pipeline_stages > 0) {
    ASSIGN_OR_RETURN(const pipeline::Place place,
                     pipeline::PlaceOf(options.rank, options.world_size, connect.pipeline_stages));
    ASSIGN_OR_RETURN(pipeline::Groups groups, pipeline::Connect(options, place));
    communicators.pipeline = std::make_unique<pipeline::Groups>(std::move(groups));
    return communicators;  // stages exchange by the processes
  }
  if (connect.nccl != nullptr && world.world_size() > 1) {
    options.nccl = connect.nccl;
    ASSIGN_OR_RETURN(communicators.devices, collectives::CreateDeviceCommunicator(options));
  }
  return communicators;
}

std::vector<collectives::Communicator*> RankCommunicators::all() const {
  std::vector<collectives::Communicator*> all = {world.get(), node.get(), devices.get()};
  if (pipeline != nullptr) {
    for (const auto* const group :
         {&pipeline->pipe, &pipeline->replicas, &pipeline->activations_in, &pipeline->gradients_out,
          &pipeline->activations_out, &pipeline->gradients_in}) {
      all.push_back(group->get());
    }
  }
  all.erase(std::remove(all.begin(), all.end(), nullptr), all.end());
  return all;
}

}  // namespace muster::rank
