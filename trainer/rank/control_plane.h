// A rank's side of the control plane: everything it asks of, and tells to, the worker of its node.
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

// What the worker put in the environment of the rank's process (MUSTER_WORKER_SOCKET,
// MUSTER_JOB_ID, MUSTER_GENERATION, RANK, MUSTER_RANK_TOKEN, MUSTER_NODE_NAME, MUSTER_CACHE_DIR,
// and, of a rank with a GPU, MUSTER_DRIVER_VERSION).
struct RankEnvironment {
  std::string worker_socket;  // a gRPC target, e.g. unix:/path
  v1::RankIdentity identity;
  std::string node_name;
  std::string cache_dir;       // shared by the node's ranks, kept between jobs
  std::string driver_version;  // of the rank's GPUs; empty: none, or not known
};

// INVALID_ARGUMENT names the missing or malformed variable.
absl::StatusOr<RankEnvironment> ReadRankEnvironment();

// Thread-safe. A call repeats over a worker's restart (UNAVAILABLE) until its time-out.
class ControlPlane : public collectives::KeyStore {
 public:
  // Waits for every rank of the generation. DEADLINE_EXCEEDED, ABORTED.
  virtual absl::StatusOr<v1::JoinResponse> Join(const v1::JoinInfo& info,
                                                absl::Duration timeout) = 0;

  // Waits for every rank of the job. `group` names a series of barriers; each call is the next of
  // its series.
  virtual absl::Status Barrier(absl::string_view group, absl::Duration timeout) = 0;

  virtual absl::Status ReportConnected() = 0;
  // Kept and sent from a thread of its own, the newest only: never blocks a step.
  virtual void ReportProgress(const v1::Progress& progress) = 0;
  virtual absl::Status ReportFailure(const v1::FailureReport& failure) = 0;
  // On the worker's disk when it returns OK.
  virtual absl::Status ReportSummary(const v1::TrainSummary& summary) = 0;

  // Called from the control plane's own thread for each directive, also one that came before this
  // call. At most one handler; set it before Join.
  virtual void SetDirectiveHandler(std::function<void(const v1::Directive&)> handler) = 0;
};

std::unique_ptr<ControlPlane> ConnectControlPlane(const RankEnvironment& environment);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_CONTROL_PLANE_H_
