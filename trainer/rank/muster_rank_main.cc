// muster-rank: runs one rank of a train job. Started by muster-worker's shim, which configures it
// through environment variables, or by `muster spec explain-plan` with --explain-plan.
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "collectives/nccl/nccl_library.h"
#include "glog/logging.h"
#include "trainer/exit_code.h"
#include "trainer/rank/abort_switch.h"
#include "trainer/rank/control_plane.h"
#include "trainer/rank/explain_plan.h"
#include "trainer/rank/train_job.h"
#include "trainer/strategy/process_groups.h"

namespace muster::rank {
namespace {

void Flush() {
  google::FlushLogFiles(google::INFO);
  std::fflush(nullptr);
}

int RunRank() {
  collectives::SetNcclEnvironment();
  const auto environment = ReadRankEnvironment();
  const auto launch = ReadLaunch();
  for (const absl::Status& status : {environment.status(), launch.status()}) {
    if (status.ok()) continue;
    LOG(ERROR) << status.message();
    return train::kExitFailure;
  }
  AbortSwitch abort;
  const std::unique_ptr<ControlPlane> control = ConnectControlPlane(*environment);
  control->SetDirectiveHandler([&abort](const v1::Directive& directive) {
    const std::string why = absl::StrCat(directive.reason(), ": ", directive.message());
    if (directive.kind() == v1::Directive::ABORT) {
      LOG(WARNING) << "aborting: " << why;
      abort.Abort(absl::AbortedError(why));
    } else if (directive.kind() == v1::Directive::STOP) {
      LOG(WARNING) << "stopping: " << why;
      Flush();
      // Same effect as the worker's signal, which will follow. Safe, because checkpoints are
      // published atomically.
      std::raise(SIGTERM);
    }
  });
  return TrainJob(*environment, *launch, control.get(), &abort, train::ProcessGroups::Create).Run();
}

}  // namespace
}  // namespace muster::rank

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  if (argc > 1 && absl::string_view(argv[1]) == "--explain-plan") {
    return muster::rank::RunExplainPlan({argv + 2, argv + argc}, std::cin, std::cout);
  }
  const int exit_code = muster::rank::RunRank();
  muster::rank::Flush();
  return exit_code;
}
