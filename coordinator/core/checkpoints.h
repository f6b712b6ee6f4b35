// The checkpoints of train jobs: requests to write one, and what rank 0 reports about them.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_CHECKPOINTS_H_
#define MUSTER_COORDINATOR_CORE_CHECKPOINTS_H_

#include "absl/status/status.h"
#include "coordinator/core/actor.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/node_table.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

class Checkpoints {
 public:
  Checkpoints(JobTable& jobs, NodeTable& nodes, Context& context)
      : jobs_(jobs), nodes_(nodes), context_(context) {}

  // Asks rank 0 of a running train job to write a checkpoint. Errors: FAILED_PRECONDITION if the
  // job does not train or writes no checkpoints, UNAVAILABLE if the node of rank 0 is not
  // connected.
  absl::Status Request(Job& job, const Actor& actor);

  // Records the status that rank 0 reports. Adds an event if checkpoints could not be written.
  void Record(Job& job, const v1::CheckpointStatus& reported);

 private:
  void NoteFailures(Job& job, const v1::CheckpointStatus& before);
  // Warns that only one of several nodes has the checkpoints.
  void NoteLocation(Job& job);

  JobTable& jobs_;
  NodeTable& nodes_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_CHECKPOINTS_H_
