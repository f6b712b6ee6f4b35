// Obtains the plan of a spec from muster-rank, since the command line does not link the engine.
#ifndef MUSTER_CLI_SPEC_PLAN_PROCESS_H_
#define MUSTER_CLI_SPEC_PLAN_PROCESS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/plan.pb.h"

namespace muster::cli {

struct PlanRequest {
  v1::JobSpec spec;  // complete and valid
  uint32_t ranks = 1;
  bool time = false;
  bool kernels = false;
  std::string device;  // cpu, cuda, or empty for muster-rank's default
};

// Runs `program`, a muster-rank binary, until it has answered; it shares this process's stderr.
// Errors carry muster-rank's message; PlanExitCode gives the exit code for them.
absl::StatusOr<v1::PlanReport> RequestPlan(const std::string& program, const PlanRequest& request);

int PlanExitCode(const absl::Status& status);

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_PLAN_PROCESS_H_
