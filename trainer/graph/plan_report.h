// Converts a compiled plan, its timings and its launches to a PlanReport.
#ifndef MUSTER_TRAINER_GRAPH_PLAN_REPORT_H_
#define MUSTER_TRAINER_GRAPH_PLAN_REPORT_H_

#include <cstdint>

#include "kernels/cuda/counting/gpu_model.h"
#include "proto/muster/v1/plan.pb.h"
#include "trainer/graph/compiled_plan.h"
#include "trainer/graph/launch_counter.h"
#include "trainer/graph/plan_timer.h"

namespace muster::nn {

// How a training step uses the plan.
struct PlanUse {
  uint32_t samples = 0;             // per call
  uint32_t accumulation_steps = 1;  // calls per step
  uint32_t views = 1;               // samples per image
};

// Sets every field except PlanReport::ranks, parameter_bytes, times and work.
v1::PlanReport DescribePlan(const CompiledPlan& plan, const PlanUse& use);

// Adds the times that `timer`, which must have observed `plan`, measured for the operations and the
// other phases of a step. At least one step must have ended.
void AddTimes(const PlanTimer& timer, v1::PlanReport& report);

// Whether AddWork adds sums per phase only, or also each kernel.
enum class WorkDetail { kPhases, kKernels };

// Adds the launches of one step, which `counter` recorded, for a plan with the operations of
// `report`. `model` gives the rates for their times; null: no times. `compute` is the type of the
// products.
void AddWork(const LaunchCounter& counter, const kernels::GpuModel* model,
             kernels::DataType compute, WorkDetail detail, v1::PlanReport& report);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PLAN_REPORT_H_
