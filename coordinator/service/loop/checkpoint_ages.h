// When the coordinator noticed the newest checkpoints of running train jobs.
#ifndef MUSTER_COORDINATOR_SERVICE_LOOP_CHECKPOINT_AGES_H_
#define MUSTER_COORDINATOR_SERVICE_LOOP_CHECKPOINT_AGES_H_

#include <cstdint>
#include <map>
#include <string>

#include "common/time/time.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::service {

// Not thread-safe.
class CheckpointAges {
 public:
  // Notes the present state of a job: call it after each change.
  void Note(const v1::Job& job, SteadyTime now);
  void Forget(const std::string& job_id) { jobs_.erase(job_id); }

  // By job id: when its newest checkpoint or its generation was noticed, whichever is later.
  // Running train jobs only.
  std::map<std::string, SteadyTime> Since() const;

 private:
  struct Newest {
    uint64_t generation = 0;
    uint64_t step = 0;
    SteadyTime noticed;
  };
  std::map<std::string, Newest> jobs_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_LOOP_CHECKPOINT_AGES_H_
