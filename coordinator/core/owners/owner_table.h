// All owners of jobs: what they may submit, what they use now, and what they have used.
//
// An owner's record is written in the steps in which one of its generations starts or ends, or one
// of its jobs finishes: what its generations use in between follows from their records. The jobs
// that have not started count from the job table, so that submitting one writes no owner.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_OWNERS_OWNER_TABLE_H_
#define MUSTER_COORDINATOR_CORE_OWNERS_OWNER_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/limits.h"
#include "coordinator/core/context.h"
#include "coordinator/core/owners/owner.h"
#include "coordinator/core/scheduler/fair_share.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

class OwnerTable : public OwnerUsage {
 public:
  explicit OwnerTable(Context& context, size_t max_owners = limits::kOwners)
      : context_(context), max_owners_(max_owners) {}

  // Checks that the actor may submit a job of this class, and `jobs` further ones. Errors:
  // PERMISSION_DENIED, RESOURCE_EXHAUSTED, INVALID_ARGUMENT for an unknown class.
  absl::Status CheckSubmit(const v1::JobSpec& spec, const Actor& actor, uint32_t jobs = 1) const;

  // ---- Life cycle of jobs
  // The job has entered the states QUEUED and HELD, or left them.
  void OnQueued(const v1::Job& job) { ++At(job.owner()).queued_jobs; }
  void OnUnqueued(const v1::Job& job);
  // A generation of the job starts. `submitted`: set for the job's first one.
  void OnStart(const v1::Job& job, const SlotCount& slots, std::optional<SteadyTime> submitted);
  // Nothing of the generation is left, which began at `begin` and spent this time.
  void OnEnd(const v1::Job& job, const SlotCount& slots, const Ledger& spent, SteadyTime begin);
  void OnFinish(const v1::Job& job, SteadyTime submitted, v1::JobState state);

  // ---- Reading
  // Of OwnerUsage: slot-seconds with exponential decay, and slots of running generations.
  double Usage(const std::string& owner, SteadyTime now) const override;
  uint32_t RunningSlots(const std::string& owner) const override;
  // The owners that have jobs or have used the cluster, by name.
  std::vector<v1::OwnerUse> Uses(Time now) const;
  // The time by cause of a generation that runs.
  struct Running {
    std::string owner;
    Ledger spent;
    SteadyTime begin;
  };
  // An unfinished job that has not started yet.
  struct Unstarted {
    std::string owner;
    SteadyTime submitted;
  };
  // Use on the newest `days` days. `running`: the living generations; `present`: the slots of the
  // cluster.
  v1::GetReportResponse Report(uint32_t days, const std::vector<Unstarted>& unstarted,
                               const std::vector<Running>& running, const SlotCount& present,
                               Time now) const;
  size_t size() const { return owners_.size(); }

  // ---- Records
  void Restore(const v1::OwnerRecord& record);
  // A generation that runs when the coordinator starts; after Restore of its owner.
  void RestoreRunning(const v1::Job& job, const SlotCount& slots) { At(job.owner()).Resume(slots); }
  // Adds the writes to the step's effects.
  void WriteChanges();

 private:
  // Returns the owner, which is added if it is unknown.
  Owner& At(const std::string& name);
  // Makes room for another owner: forgets the one without jobs that has used least.
  void ForgetLeastUsed();
  // Charges the owner's generations, and has its record written.
  Owner& Change(const std::string& name);

  Context& context_;
  const size_t max_owners_;
  std::map<std::string, Owner> owners_;
  std::set<std::string> changed_;  // in this step
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OWNERS_OWNER_TABLE_H_
