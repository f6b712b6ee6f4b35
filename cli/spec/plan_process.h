// Asks muster-rank for the plan of a spec: the command line itself does not hold the engine.
#ifndef MUSTER_CLI_SPEC_PLAN_PROCESS_H_
#define MUSTER_CLI_SPEC_PLAN_PROCESS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/plan.pb.h"

namespace muster::cli {

struct PlanQuestion {
  v1::JobSpec spec;  // complete and valid
  uint32_t ranks = 1;
  bool time = false;
  std::string device;  // cpu, cuda, or empty: as muster-rank chooses
};

// Runs `program`, muster-rank, until it has answered; its stderr is this process's. Errors have
// muster-rank's words; PlanExitCode says what to exit with.
absl::StatusOr<v1::PlanReport> AskForPlan(const std::string& program, const PlanQuestion& question);

int PlanExitCode(const absl::Status& status);

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_PLAN_PROCESS_H_
