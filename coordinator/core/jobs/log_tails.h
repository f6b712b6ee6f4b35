// The ends of exited ranks' logs, which outlive the ranks' nodes.
//
// Bounded per generation, by the number of generations per job, and in total (common/limits.h);
// beyond the total, those of the oldest jobs are deleted. Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_LOG_TAILS_H_
#define MUSTER_COORDINATOR_CORE_JOBS_LOG_TAILS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class LogTails {
 public:
  explicit LogTails(Context& context) : context_(context) {}

  // Stores the end of the log of one of the job's ranks, once; ignores it for an older generation.
  // Errors: INVALID_ARGUMENT for a tail beyond the limits, RESOURCE_EXHAUSTED when the generation
  // has used up its space.
  absl::Status Add(const Job& job, v1::LogTail tail);
  // Adds a stored tail.
  void Restore(const Job& job, v1::LogTail tail);
  // Null when there is none.
  const v1::LogTail* Find(const Job& job, Generation generation, Rank rank) const;
  // Removes the tails of a job that is being deleted; returns the keys of their records.
  std::vector<std::string> Remove(const Job& job);

 private:
  struct Key {
    uint64_t job = 0;  // its queue sequence number, so that older jobs come first
    uint64_t generation = 0;
    uint32_t rank = 0;
    auto operator<=>(const Key&) const = default;
  };
  using Tails = std::map<Key, v1::LogTail>;

  // Removes the tail without deleting its record; returns the record's key.
  std::string Erase(Tails::iterator entry);
  void Delete(Tails::iterator entry);

  Context& context_;
  Tails tails_;
  std::map<std::pair<uint64_t, uint64_t>, size_t> generation_bytes_;  // by job and generation
  size_t bytes_ = 0;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_LOG_TAILS_H_
