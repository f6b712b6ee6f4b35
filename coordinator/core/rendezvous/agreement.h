// What the coordinator tells nodes while a generation gathers.
#ifndef MUSTER_COORDINATOR_CORE_RENDEZVOUS_AGREEMENT_H_
#define MUSTER_COORDINATOR_CORE_RENDEZVOUS_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/core/jobs/job.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// None before every rank has told its JoinInfo. Training resumes from the newest checkpoint that
// anybody has; of those that have it the lowest rank reads and broadcasts.
std::optional<Agreement> Agree(const GenerationState& generation);
std::string Describe(const Agreement& agreement);

// Ranks whose fingerprints differ would train something that nobody asked for, or hang. Every rank
// has joined.
struct Mismatch {
  uint32_t rank = 0;    // the lowest that differs from rank 0
  std::string message;  // two lines: all that differs, as rank 0 has it and as this one does
};
std::optional<Mismatch> FindMismatch(const GenerationState& generation);

v1::CoordinatorMessage MakeLaunch(const Job& job, uint32_t node_rank);
// The node's slice of the world. The generation has its agreement.
v1::CoordinatorMessage MakeWorld(const Job& job, uint32_t node_rank);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_AGREEMENT_H_
