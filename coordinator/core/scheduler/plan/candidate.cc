#include "coordinator/core/scheduler/plan/candidate.h"

#include <algorithm>

namespace muster::core {

Candidate Describe(const JobQueue::Entry& entry, const JobQueue& queue, Cluster& cluster,
                   SteadyTime now) {
  const JobQueue::Group& group = queue.group(entry.group);
  Candidate job;
  job.id = entry.id;
  job.owner = queue.order().owner(entry.owner);
  job.owner_index = entry.owner;
  job.group = entry.group;
  job.job_class = group.job_class;
  job.preempted = group.preempted;
  job.end = now + group.length;
  job.cells = &cluster.CellsOf(group.shape, queue.shapes()[group.shape]);
  job.slots = Cluster::LeastSlotsOf(*job.cells);
  return job;
}

uint64_t Allowance::Used(const Candidate& job, const Stopping* stopping) const {
  uint64_t used = usage_.RunningSlots(job.owner);
  const auto claimed = claimed_.find(job.owner);
  if (claimed != claimed_.end()) used += claimed->second;
  if (IsRenewed(job.id)) used -= job.slots;
  if (stopping == nullptr) return used;
  for (const uint32_t running : RunningOf(job.owner)) {
    if ((*stopping)[running]) used -= std::min<uint64_t>(used, cluster_.running(running).slots);
  }
  return used;
}

bool Allowance::IsExceeded(const Candidate& job, uint64_t slots, const Stopping* stopping) const {
  const uint32_t limit = LimitOf(job);
  return limit > 0 && Used(job, stopping) + slots > limit;
}

const std::vector<uint32_t>& Allowance::RunningOf(const std::string& owner) const {
  if (!running_.has_value()) {
    running_.emplace();
    for (uint32_t i = 0; i < cluster_.all_running().size(); ++i) {
      const RunningJob& job = cluster_.running(i);
      if (!job.id.value().empty()) (*running_)[job.owner].push_back(i);
    }
  }
  return (*running_)[owner];
}

}  // namespace muster::core
