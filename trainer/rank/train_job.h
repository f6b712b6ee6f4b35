// One rank's life in a train job: set up, join, connect, train, report.
#ifndef MUSTER_TRAINER_RANK_TRAIN_JOB_H_
#define MUSTER_TRAINER_RANK_TRAIN_JOB_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "collectives/factory.h"
#include "kernels/device.h"
#include "proto/muster/v1/worker.pb.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/loop/training_setup.h"
#include "trainer/rank/abort_switch.h"
#include "trainer/rank/control_plane.h"
#include "trainer/rank/rank_device.h"
#include "trainer/strategy/process_groups.h"

namespace muster::rank {

// The launch that this rank is part of, from the file that MUSTER_LAUNCH_FILE names: the worker
// wrote it before it started the rank. INVALID_ARGUMENT when the variable is not set; DATA_LOSS and
// others name the file.
absl::StatusOr<v1::Launch> ReadLaunch();

// Makes the communicators of a rank; ProcessGroups::Create, but for tests.
using CommunicatorFactory = std::function<absl::StatusOr<train::ProcessGroups>(
    const collectives::WorldOptions& options, const train::RequiredGroups& required)>;

// For the process's main thread.
class TrainJob {
 public:
  // `control` and `abort` outlive the job. Whoever aborts the switch ends collectives under way:
  // Run returns soon.
  TrainJob(const RankEnvironment& environment, v1::Launch launch, ControlPlane* control,
           AbortSwitch* abort, CommunicatorFactory factory);

  // Runs to the end, reports a failure, and returns what the process is to exit with
  // (train/exit_code.h).
  int Run();

 private:
  absl::Status RunToEnd();
  // The GPU, where the rank has one, and what connects it with others'.
  absl::Status OpenDevice();
  v1::RankPlacement Placement() const;  // this rank's
  // On which it computes; more than one only where the strategy drives several.
  std::vector<kernels::Device*> Devices() const;
  absl::Status OpenCheckpoints(v1::JoinInfo& info);
  absl::Status Train(const train::ProcessGroups& groups, const v1::World& world);
  // A directory of the spec's, on this node.
  std::string OnThisNode(const std::string& directory) const;
  void ReportFailure(const absl::Status& status);
  void SetPhase(const std::string& phase);

  const RankEnvironment environment_;
  const v1::Launch launch_;
  const absl::Duration failure_timeout_;
  ControlPlane* const control_;
  AbortSwitch* const abort_;
  const CommunicatorFactory factory_;
  std::vector<std::unique_ptr<kernels::Device>> gpus_;  // none: the rank computes on the processor
  std::optional<collectives::NcclParts> nccl_;
  std::unique_ptr<train::TrainingSetup> setup_;
  std::optional<train::CheckpointDirectory> checkpoints_;
  std::string phase_;
  uint64_t step_ = 0;
};

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_TRAIN_JOB_H_
