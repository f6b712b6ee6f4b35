// A rank's client of the control plane: its RPCs to the worker of its node.
#ifndef MUSTER_TRAINER_RANK_CONTROL_PLANE_H_
#define MUSTER_TRAINER_RANK_CONTROL_PLANE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "proto/muster/v1/rank.pb.h"

namespace muster::rank {

// Environment variables that the worker sets for a rank's process: MUSTER_WORKER_SOCKET,
// MUSTER_JOB_ID, MUSTER_GENERATION, RANK, MUSTER_RANK_TOKEN, MUSTER_NODE_NAME, MUSTER_CACHE_DIR,
// MUSTER_CHECKPOINT_DIR, optionally MUSTER_JOB_MEMORY_DIR, and, for a rank with a GPU,
// MUSTER_DRIVER_VERSION.
struct RankEnvironment {
  std::string worker_socket;  // gRPC target, e.g. unix:/path
  v1::RankIdentity identity;
  std::string node_name;
  std::string cache_dir;       // shared by the node's ranks; kept between jobs
  std::string checkpoint_dir;  // directory of the job's checkpoints
  std::string memory_dir;      // for MemoryCheckpoints of the job on this node; empty: none
  std::string trace_dir;       // where the rank's StepTrace is written; empty: none
  std::string driver_version;  // GPU driver version; empty if unknown or without a GPU
};

// INVALID_ARGUMENT with the name of the missing or malformed variable.
absl::StatusOr<RankEnvironment> ReadRankEnvironment();

// Thread-safe. Calls are retried while the worker restarts (UNAVAILABLE), until their timeout.
class ControlPlane : public collectives::KeyStore {
 public:
  // Joins the generation and waits for all its ranks. DEADLINE_EXCEEDED, ABORTED.
  virtual absl::StatusOr<v1::JoinResponse> Join(const v1::JoinInfo& info,
                                                absl::Duration timeout) = 0;

  // Waits for all ranks of the job. `group` names a sequence of barriers; each call enters the next
  // barrier of its sequence.
  virtual absl::Status Barrier(absl::string_view group, absl::Duration timeout) = 0;

  virtual absl::Status ReportConnected() = 0;
  // Sends only the latest report, from a separate thread; never blocks a step.
  virtual void ReportProgress(const v1::Progress& progress) = 0;
  // As ReportProgress, which repeats the latest status in each later report.
  virtual void ReportCheckpoint(const v1::CheckpointStatus& checkpoint) = 0;
  virtual absl::Status ReportFailure(const v1::FailureReport& failure) = 0;
  // When it returns OK, the worker has written the summary to disk.
  virtual absl::Status ReportSummary(const v1::TrainSummary& summary) = 0;

  // Sets the handler that the control plane's thread calls for each directive, including one
  // received before this call. At most one handler; set it before Join.
  virtual void SetDirectiveHandler(std::function<void(const v1::Directive&)> handler) = 0;
};

std::unique_ptr<ControlPlane> ConnectControlPlane(const RankEnvironment& environment);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_CONTROL_PLANE_H_
