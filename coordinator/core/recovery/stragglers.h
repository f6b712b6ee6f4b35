// Names the ranks that the others of their job wait for in each step.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_STRAGGLERS_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_STRAGGLERS_H_

#include <cstdint>
#include <map>

#include "common/ids.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/recovery/straggler_detector.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Job.stragglers is stored, so that a restarted coordinator does not report a straggler again; what
// the ranks reported is in memory, and is complete again after a few windows.
//
// Not thread-safe.
class Stragglers {
 public:
  Stragglers(JobTable& jobs, Context& context) : jobs_(jobs), context_(context) {}

  // Takes the windows in a rank's report. The job must have a living generation.
  void NoteWindows(Job& job, const RankState& rank, const v1::StepWindows& windows);
  // The generation is stopping.
  void End(Job& job);

  // See v1::RankStatus.slowdown and v1::Job.slowdown.
  double SlowdownOf(const JobId& job, uint32_t rank) const;
  double HighestSlowdown(const JobId& job) const;

 private:
  struct Watch {
    StragglerDetector detector;
    uint32_t ranks = 0;
    uint32_t events = 0;
  };

  void Begin(Job& job, Watch& watch, const StragglerDetector::Change& change);
  void EndOf(Job& job, Watch& watch, const StragglerDetector::Change& change);
  void AddEvent(Job& job, Watch& watch, const char* type, const std::string& message);

  JobTable& jobs_;
  Context& context_;
  std::map<JobId, Watch> watches_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_STRAGGLERS_H_
