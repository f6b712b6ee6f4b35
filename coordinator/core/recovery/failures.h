// What went wrong in each living generation, and which of it is recorded as the job's first
// failure.
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

  // ---- Evidence. The job has a living generation.
  // The exit of the rank is on record.
  void NoteExit(Job& job, const RankState& rank);
  // rank.failure is set; the rank has not exited yet.
  void NoteReport(Job& job, const RankState& rank);
  void NoteNodeLost(Job& job, const Node& node, const std::string& why);
  // A failure without a generation or time gets the job's generation and the step's time.
  void Add(Job& job, v1::FirstFailure failure, bool consequence);
  // The job has to move though nothing failed: a worker ended a rank of its own accord.
  void Displace(const Job& job, std::string why) { evidence_[job.id()].displaced = std::move(why); }
  // Rebuilds the evidence of a generation that was active when the coordinator ended.
  void Recall(Job& job);
  // The generation is over.
  void Clear(const Job& job) { evidence_.erase(job.id()); }

  // ---- Conclusions
  // The failure that arrived first; null when nothing failed.
  const v1::FirstFailure* Earliest(const Job& job) const;
  // Why the job has to move; null when it does not.
  const std::string* Displaced(const Job& job) const;
  // Living ranks that a peer reported as lost.
  std::set<uint32_t> AccusedRanks(const Job& job) const;
  bool IsAttributed(const Job& job) const;
  // Waits for Options::cause_window, at most, for the cause to become certain.
  void ArmCauseTimer(const Job& job);
  // Records the first failure if its cause is certain; with `final`, the best guess.
  void Attribute(Job& job, bool final);

 private:
  struct Evidence {
    FailureLog log;
    std::set<uint32_t> accused;  // ranks that a peer reported as lost
    std::optional<std::string> displaced;
  };

  const Evidence* Find(const Job& job) const;
  // Whether failures count: not those of ranks that end because they were asked to.
  bool SeeksCause(const Job& job) const;
  void Accuse(const Job& job, const v1::FailureReport& report, uint32_t by_rank);
  bool IsAccused(const Job& job, const v1::FirstFailure& failure) const;

  JobTable& jobs_;
  Context& context_;
  std::map<JobId, Evidence> evidence_;
};

// Whether a job whose generation failed gets another one, and if not, why not.
struct RestartVerdict {
  bool allowed = false;
  std::string reason;   // of the job's end
  std::string why_not;  // for people
};
RestartVerdict MayRestart(const Job& job);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_FAILURES_H_
