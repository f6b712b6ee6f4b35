#include "coordinator/service/loop/checkpoint_ages.h"

namespace muster::service {

void CheckpointAges::Note(const v1::Job& job, SteadyTime now) {
  if (job.state() != v1::RUNNING || !job.spec().has_train()) {
    Forget(job.job_id());
    return;
  }
  const auto [found, is_new] = jobs_.try_emplace(job.job_id());
  Newest& newest = found->second;
  const uint64_t step = job.checkpoint().step();
  if (!is_new && newest.generation == job.generation() && newest.step == step) return;
  newest = {job.generation(), step, now};
}

std::map<std::string, SteadyTime> CheckpointAges::Since() const {
  std::map<std::string, SteadyTime> since;
  for (const auto& [job, newest] : jobs_) since[job] = newest.noticed;
  return since;
}

}  // namespace muster::service
