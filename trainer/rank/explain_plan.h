// Explains the plan of a train job's ranks without running the job, reading its data or connecting
// ranks.
#ifndef MUSTER_TRAINER_RANK_EXPLAIN_PLAN_H_
#define MUSTER_TRAINER_RANK_EXPLAIN_PLAN_H_

#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/cuda/counting/gpu_model.h"
#include "kernels/device.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/plan.pb.h"

namespace muster::rank {

struct ExplainPlanOptions {
  uint32_t ranks = 1;    // number of ranks that the batch is divided among
  bool time = false;     // also time steps on random data
  bool kernels = false;  // also list the kernels of each phase; needs gpu_model
  // Time limit for timed steps; at least a few and at most some tens of steps are run.
  absl::Duration time_budget = absl::Seconds(3);
  kernels::Device* device = &kernels::CpuDevice();
  // GPU whose launches of a step are counted; null: none. `device` need not be that GPU.
  const kernels::GpuModel* gpu_model = nullptr;
};

// Compiles the plan for the largest share of the batch. `spec` must be a complete and valid train
// job. Reads no data except, for an image_folder, the names of its folders. Errors carry an exit
// code: kExitBadSpec if the model is inconsistent, kExitNoInput if a folder cannot be read.
absl::StatusOr<v1::PlanReport> ExplainPlan(const v1::JobSpec& spec,
                                           const ExplainPlanOptions& options);

// Implements `muster-rank --explain-plan [--time] [--ranks=N] [--device=cpu|cuda|h100|h200]`: reads
// a serialized JobSpec and writes a serialized PlanAnswer. `flags` are those after --explain-plan.
// Without --device, uses the GPU if the spec has device gpu and there is one, otherwise the CPU.
// h100 and h200 need no GPU. Returns the exit status.
int RunExplainPlan(const std::vector<std::string>& flags, std::istream& in, std::ostream& out);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_EXPLAIN_PLAN_H_
