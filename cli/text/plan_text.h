// How a training step is computed, as the command line tells it.
#ifndef MUSTER_CLI_TEXT_PLAN_TEXT_H_
#define MUSTER_CLI_TEXT_PLAN_TEXT_H_

#include <string>

#include "proto/muster/v1/plan.pb.h"

namespace muster::cli {

// A line for each operation; with times also for what else a step does, and the sum.
std::string PlanTable(const v1::PlanReport& report, bool wide);

// Totals, in lines.
std::string PlanTotals(const v1::PlanReport& report);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_PLAN_TEXT_H_
