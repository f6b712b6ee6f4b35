// Runs one rank of a train job: set up, join, connect, train, report.
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
#include "trainer/checkpoint/job_checkpoints.h"
#include "trainer/checkpoint/memory_checkpoint.h"
#include "trainer/data/cache_file.h"
#include "trainer/loop/rank_requests.h"
#include "trainer/loop/step_trace.h"
#include "trainer/loop/training_setup.h"
#include "trainer/rank/abort_switch.h"
#include "trainer/rank/control_plane.h"
#include "trainer/rank/rank_device.h"
#include "trainer/strategy/process_groups.h"

namespace muster::rank {

// Reads this rank's launch from the file in MUSTER_LAUNCH_FILE, which the worker wrote before
// starting the rank. INVALID_ARGUMENT if the variable is not set; DATA_LOSS and other errors name
// the file.
absl::StatusOr<v1::Launch> ReadLaunch();

// Creates the communicators of a rank: ProcessGroups::Create, or a fake in tests.
using CommunicatorFactory = std::function<absl::StatusOr<train::ProcessGroups>(
    const collectives::WorldOptions& options, const train::RequiredGroups& required)>;

// Used by the main thread of the process.
class TrainJob {
 public:
  // `control`, `abort` and `requests` outlive the job. Aborting the switch aborts collectives in
  // progress, so that Run returns soon.
  TrainJob(const RankEnvironment& environment, v1::Launch launch, ControlPlane* control,
           AbortSwitch* abort, train::RankRequests* requests, CommunicatorFactory factory);

  // Runs the rank to its end, reports a failure, and returns the exit code of the process
  // (trainer/exit_code.h).
  int Run();
  // After Run: signal that asked the rank to stop and by which the process must end, as if it had
  // not been handled; 0 if there was none.
  int stopped_by() const { return stopped_by_; }

 private:
  absl::Status RunToEnd();
  // Opens the rank's GPUs, if any, and NCCL.
  absl::Status OpenDevice();
  v1::RankPlacement Placement() const;  // placement of this rank
  // Devices that the rank computes on; several only if the strategy drives several.
  std::vector<kernels::Device*> Devices() const;
  absl::Status OpenCheckpoints(v1::JoinInfo& info);
  // Describes the newest checkpoint on this node, and what is in its memory, to the coordinator.
  void DescribeNewestCheckpoint(v1::JoinInfo& info);
  void DescribeMemory(v1::JoinInfo& info);
  // The parts of the state in memory that the ranks have agreed on.
  absl::StatusOr<std::vector<train::MemoryPart>> MemoryPartsOf(const v1::World& world) const;
  // Directory on this node to which the job's checkpoints are written.
  std::string CheckpointDirectoryPath() const;
  // Reports the newest checkpoint in the job's directory, without a name if there is none, and the
  // best one; on rank 0. Uses no files.
  void ReportCheckpoint(const train::CheckpointRef& newest);
  // Reports a checkpoint that could not be written; on rank 0.
  void ReportCheckpointFailure(uint64_t step, const absl::Status& failure);
  // NOT_FOUND if the spec names a directory to resume from and no rank found a checkpoint.
  absl::Status CheckResume(const v1::World& world) const;
  absl::Status Train(const train::ProcessGroups& groups, const v1::World& world);
  // Path on this node of a directory in the spec.
  std::string OnThisNode(const std::string& directory) const;
  void ReportFailure(const absl::Status& status);
  // Destroys what this rank has on its GPUs, and logs how long the driver takes.
  void ReleaseDevices();
  void SetPhase(const std::string& phase);
  void NotePhase(const std::string& phase);
  // The node's cache; work that fills it is reported as progress of `phase`.
  data::Cache CacheFor(const std::string& phase);

  const RankEnvironment environment_;
  v1::Launch launch_;  // constant once RunToEnd has resolved loader.threads
  const absl::Duration failure_timeout_;
  ControlPlane* const control_;
  AbortSwitch* const abort_;
  train::RankRequests* const requests_;
  const CommunicatorFactory factory_;
  std::vector<std::unique_ptr<kernels::Device>> gpus_;  // empty: computes on the CPU
  std::optional<collectives::NcclParts> nccl_;
  std::unique_ptr<train::TrainingSetup> setup_;
  train::JobCheckpoints checkpoints_;
  // Where the ranks of this node leave their state if a peer is lost, and what those of earlier
  // generations left there, newest first.
  std::optional<train::MemoryCheckpoints> memory_;
  std::vector<train::MemoryCheckpoint> in_memory_;
  v1::CheckpointStatus checkpoint_status_;
  std::unique_ptr<train::StepTrace> trace_;  // null: this rank has none
  int stopped_by_ = 0;
  std::string phase_;
  uint64_t step_ = 0;
  bool reported_failure_ = false;
};

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_TRAIN_JOB_H_
