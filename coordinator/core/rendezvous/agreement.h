// The checkpoint and the layout that the ranks of a generation agree on once all have joined. Pure
// functions of the ranks' JoinInfos, so that a restarted coordinator computes the same agreement.
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
  // A state in memory of which a part is lost.
  struct IncompleteState {
    uint64_t step = 0;
    uint32_t parts = 0;
    uint32_t lost_part = 0;  // the first one
  };

  std::optional<uint32_t> resume_rank;  // no value: no rank has a checkpoint
  uint64_t resume_generation = 0;       // generation of this job; 0: another job's, or unknown
  uint64_t resume_step = 0;
  std::string resume_path;    // path of the checkpoint; empty for a state in memory
  std::string resume_job_id;  // job that wrote it
  // For a state in memory, the ranks that read its parts, by part; resume_rank is the first.
  std::vector<uint32_t> memory_ranks;
  std::optional<IncompleteState> incomplete;  // newest state in memory, if it is newer
  bool canonical_layout = false;
};

// Returns nullopt until all ranks have joined. Training resumes from the newest checkpoint of any
// rank: the one of the highest generation, and in it of the highest step, because a later
// generation may have resumed from an earlier step. One that another job wrote counts only if
// `job_id` has none of its own. The lowest rank that has the checkpoint reads and broadcasts it.
//
// A state in memory counts like a checkpoint of the same generation and step if each of its parts
// is in the memory of some rank's node; parts of different steps are never combined. With equal
// ones on disk and in memory, the one in memory is used, which is read faster.
std::optional<Agreement> Agree(const Joins& joins, const std::string& job_id);
// `reached`: the highest step that the job has completed in any generation.
std::string Describe(const Agreement& agreement, const std::string& job_id, uint64_t reached);

// A difference between the fingerprints of two ranks, which would train different models, or hang.
struct Mismatch {
  uint32_t rank = 0;    // the lowest that differs from rank 0
  std::string message;  // two lines: the entries of rank 0 that differ, and those of `rank`
};
// Requires that all ranks have joined.
std::optional<Mismatch> FindMismatch(const Joins& joins, const GenerationState& generation);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_AGREEMENT_H_
