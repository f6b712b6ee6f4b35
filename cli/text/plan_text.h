// Formats an execution plan as text.
#ifndef MUSTER_CLI_TEXT_PLAN_TEXT_H_
#define MUSTER_CLI_TEXT_PLAN_TEXT_H_

#include <string>

#include "proto/muster/v1/plan.pb.h"

namespace muster::cli {

// One line per operation; with times, also lines for the objective, the optimizer and the sum.
std::string PlanTable(const v1::PlanReport& report, bool wide);

// One line per kernel, in the order of a step's phases: forward, backward, and the work outside the
// operations. For a report with the kernels of its phases.
std::string PlanKernelTable(const v1::PlanReport& report);

// Totals, a few lines of text.
std::string PlanTotals(const v1::PlanReport& report);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_PLAN_TEXT_H_
