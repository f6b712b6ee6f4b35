// Collects the failures of each living generation and decides which of them is recorded as the
// job's first failure.
//
// Evidence arrives in any order: exits, reports of ranks that lost a peer, lost nodes. It is kept
// per generation, in memory; after a restart of the coordinator, Recall rebuilds it from the
// records. Attribute records the first failure once, when its cause is certain or cannot become
// clearer.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_FAILURES_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_FAILURES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/core/context.h"
#include "coordinator/core/jobs/first_failure.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/node.h"

namespace muster::core {

class Failures {
 public:
  Failures(JobTable& jobs, Context& context) : jobs_(jobs), context_(context) {}

  // ---- Evidence. The job must have a living generation.
  // Notes an exit that has been recorded.
  void NoteExit(Job& job, const RankState& rank);
  // Notes a failure report: rank.failure is set, but the rank has not exited yet.
  void NoteReport(Job& job, const RankState& rank);
  void NoteNodeLost(Job& job, const Node& node, const std::string& why);
  // Adds a failure. Generation and time default to the job's generation and the step's time.
  void Add(Job& job, v1::FirstFailure failure, bool consequence);
  // Notes that the job has to move although nothing failed: a worker stopped a rank on its own.
  void Displace(const Job& job, std::string why) { evidence_[job.id()].displaced = std::move(why); }
  // Rebuilds the evidence of a generation that was active when the coordinator ended.
  void Recall(Job& job);
  // Drops the evidence of a generation that has ended.
  void Clear(const Job& job) { evidence_.erase(job.id()); }

  // ---- Conclusions
  // The failure that arrived first; null when nothing has failed.
  const v1::FirstFailure* Earliest(const Job& job) const;
  // The reason why the job has to move; null when it does not.
  const std::string* Displaced(const Job& job) const;
  // Ranks that are still alive but that a rank on another node reported as lost.
  std::set<uint32_t> AccusedRanks(const Job& job) const;
  bool IsAttributed(const Job& job) const;
  // Waits at most Options::cause_window for the cause to become certain.
  void ArmCauseTimer(const Job& job);
  // Records the first failure if its cause is certain; when `final`, records the best guess.
  void Attribute(Job& job, bool final);

 private:
  struct Evidence {
    FailureLog log;
    std::set<uint32_t> accused;  // ranks that a peer reported as lost
    // The subset that ranks on other nodes reported.
    std::set<uint32_t> accused_from_outside;
    std::optional<std::string> displaced;
  };

  const Evidence* Find(const Job& job) const;
  // Returns whether failures count: those of ranks that were asked to stop do not.
  bool SeeksCause(const Job& job) const;
  void Accuse(const Job& job, const v1::FailureReport& report, uint32_t by_rank);
  bool IsAccused(const Job& job, const v1::FirstFailure& failure) const;

  JobTable& jobs_;
  Context& context_;
  std::map<JobId, Evidence> evidence_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_FAILURES_H_
