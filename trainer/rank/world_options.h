// Converts the coordinator's description of a generation to communicator options.
#ifndef MUSTER_TRAINER_RANK_WORLD_OPTIONS_H_
#define MUSTER_TRAINER_RANK_WORLD_OPTIONS_H_

#include <cstdint>

#include "collectives/factory.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::rank {

// Options for rank `rank` of `world`. The caller sets the remaining fields, e.g. store and backend.
collectives::WorldOptions WorldOptionsOf(const v1::World& world, uint32_t rank);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_WORLD_OPTIONS_H_
