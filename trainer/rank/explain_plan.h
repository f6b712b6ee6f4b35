// The plan that a train job's ranks would compute by, told without a job, its data or its peers.
#ifndef MUSTER_TRAINER_RANK_EXPLAIN_PLAN_H_
#define MUSTER_TRAINER_RANK_EXPLAIN_PLAN_H_

#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/plan.pb.h"

namespace muster::rank {

struct ExplainPlanOptions {
  uint32_t ranks = 1;  // the batch is divided among so many
  bool time = false;   // run steps on random data
  // Steps are timed until this is over, a few at least and some tens at most.
  absl::Duration time_budget = absl::Seconds(3);
  kernels::Device* device = &kernels::CpuDevice();
};

// Compiles the plan of the largest share. `spec` is a train job's, complete and valid. Of the data
// nothing is read but, for an image_folder, its folders' names. Errors carry an exit code:
// kExitBadSpec where the model does not fit together, kExitNoInput where a folder cannot be read.
absl::StatusOr<v1::PlanReport> ExplainPlan(const v1::JobSpec& spec,
                                           const ExplainPlanOptions& options);

// `muster-rank --explain-plan [--time] [--ranks=N] [--device=cpu|cuda]`: a serialised JobSpec in, a
// serialised PlanAnswer out. `flags` are those behind the first. Without --device it is the GPU
// where the spec has device gpu and there is one, else the processor. Returns the exit status.
int RunExplainPlan(const std::vector<std::string>& flags, std::istream& in, std::ostream& out);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_EXPLAIN_PLAN_H_
