// What the ranks of a generation agree on once all have joined: pure functions of their JoinInfos,
// so that the same ranks agree on the same after a restart of the coordinator.
#ifndef MUSTER_COORDINATOR_CORE_RENDEZVOUS_AGREEMENT_H_
#define MUSTER_COORDINATOR_CORE_RENDEZVOUS_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/jobs/generation.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

using Joins = std::vector<std::optional<v1::JoinInfo>>;  // by rank

struct Agreement {
  std::optional<uint32_t> resume_rank;
  uint64_t resume_step = 0;
  bool canonical_layout = false;
};

// None before every rank has joined. Training resumes from the newest checkpoint of any rank; of
// the ranks that have it, the lowest reads and broadcasts it.
std::optional<Agreement> Agree(const Joins& joins);
std::string Describe(const Agreement& agreement);

// Ranks with different fingerprints would train different models, or hang. Every rank has joined.
struct Mismatch {
  uint32_t rank = 0;    // the lowest that differs from rank 0
  std::string message;  // two lines: what differs, as rank 0 has it and as this rank has it
};
std::optional<Mismatch> FindMismatch(const Joins& joins, const GenerationState& generation);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_AGREEMENT_H_
