// What a compiled plan consists of, for people.
#ifndef MUSTER_TRAINER_GRAPH_PLAN_REPORT_H_
#define MUSTER_TRAINER_GRAPH_PLAN_REPORT_H_

#include <cstdint>

#include "proto/muster/v1/plan.pb.h"
#include "trainer/graph/compiled_plan.h"
#include "trainer/graph/plan_timer.h"

namespace muster::nn {

// How a step calls the plan.
struct PlanUse {
  uint32_t rows = 0;                // of each call
  uint32_t accumulation_steps = 1;  // calls in a step
  uint32_t views = 1;               // rows of one image
};

// Everything but PlanReport::ranks, parameter_bytes and times.
v1::PlanReport DescribePlan(const CompiledPlan& plan, const PlanUse& use);

// Adds the times of `timer`, which has watched `plan`, and of what else a step does. At least one
// step has ended.
void AddTimes(const PlanTimer& timer, v1::PlanReport& report);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PLAN_REPORT_H_
