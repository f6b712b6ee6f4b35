// muster-rank: runs one rank of a train job. Started by muster-worker's shim, which configures it
// through environment variables, or by `muster spec explain-plan` with --explain-plan.
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "collectives/nccl/nccl_library.h"
#include "common/time/steady_notification.h"
#include "glog/logging.h"
#include "trainer/exit_code.h"
#include "trainer/loop/rank_requests.h"
#include "trainer/rank/abort_switch.h"
#include "trainer/rank/control_plane.h"
#include "trainer/rank/explain_plan.h"
#include "trainer/rank/stop_signals.h"
#include "trainer/rank/train_job.h"
#include "trainer/strategy/process_groups.h"

namespace muster::rank {
namespace {

// Time for a training whose peer is lost to get its state from its devices, beyond which a stop
// ends the process.
constexpr absl::Duration kStatePatience = absl::Seconds(5);

void Flush() {
  google::FlushLogFiles(google::INFO);
  std::fflush(nullptr);
}

// How the process is to end.
struct RankEnd {
  int exit_code = 0;
  int signal = 0;  // replaces the exit code; 0: none
};

RankEnd RunRank() {
  collectives::SetNcclEnvironment();
  auto environment = ReadRankEnvironment();
  const auto launch = ReadLaunch();
  for (const absl::Status& status : {environment.status(), launch.status()}) {
    if (status.ok()) continue;
    LOG(ERROR) << status.message();
    return {.exit_code = train::kExitFailure};
  }
  // A working directory of the user's may belong to several ranks and jobs.
  if (launch->spec().workdir().empty()) environment->trace_dir = ".";
  AbortSwitch abort;
  train::RankRequests requests;
  // Ends the wait for the state of a rank whose device does not answer.
  SteadyNotification ended;
  std::optional<std::thread> patience;
  absl::Cleanup join = [&] {
    ended.Notify();
    if (patience.has_value()) patience->join();
  };
  const StopSignals signals(&requests, launch->spec());
  const std::unique_ptr<ControlPlane> control = ConnectControlPlane(*environment);
  control->SetDirectiveHandler([&](const v1::Directive& directive) {
    const std::string why = absl::StrCat(directive.reason(), ": ", directive.message());
    if (directive.kind() == v1::Directive::ABORT) {
      LOG(WARNING) << "aborting: " << why;
      abort.Abort(absl::AbortedError(why));
      Flush();
      requests.Abort();
      if (patience.has_value()) return;
      patience.emplace([&] {
        if (!ended.WaitFor(kStatePatience)) requests.GiveUpState();
      });
    } else if (directive.kind() == v1::Directive::STOP) {
      LOG(WARNING) << "stopping: " << why;
      Flush();
      if (directive.leave_in_memory()) requests.LeaveInMemory();
      // Same effect as the worker's signal, which will follow.
      std::raise(StopSignalOf(launch->spec()));
    } else if (directive.kind() == v1::Directive::CHECKPOINT) {
      requests.RequestCheckpoint();
    }
  });
  TrainJob job(*environment, *launch, control.get(), &abort, &requests,
               train::ProcessGroups::Create);
  const int exit_code = job.Run();
  return {exit_code, job.stopped_by()};
}

}  // namespace
}  // namespace muster::rank

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  if (argc > 1 && absl::string_view(argv[1]) == "--explain-plan") {
    return muster::rank::RunExplainPlan({argv + 2, argv + argc}, std::cin, std::cout);
  }
  // The control plane has sent its last reports when this returns.
  const muster::rank::RankEnd end = muster::rank::RunRank();
  muster::rank::Flush();
  if (end.signal != 0) muster::rank::EndBySignal(end.signal);
  return end.exit_code;
}
