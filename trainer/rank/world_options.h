// From what the coordinator reports of a generation to the options of its ranks' communicators.
#ifndef MUSTER_TRAINER_RANK_WORLD_OPTIONS_H_
#define MUSTER_TRAINER_RANK_WORLD_OPTIONS_H_

#include <cstdint>

#include "collectives/factory.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::rank {

// Of rank `rank` of `world`. The caller adds the store, the backend and the rest.
collectives::WorldOptions WorldOptionsOf(const v1::World& world, uint32_t rank);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_WORLD_OPTIONS_H_
