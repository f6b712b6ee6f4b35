// The core's inputs (events) and outputs (effects). Both are plain data.
#ifndef MUSTER_COORDINATOR_CORE_EVENT_H_
#define MUSTER_COORDINATOR_CORE_EVENT_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/report_bounds.h"
#include "coordinator/core/actor.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// ------------------------------------------------------------------------------------------------
// Events. The service has checked sizes and the spec; the core checks what depends on its state.

struct SubmitJob {
  RequestId request;
  JobId job_id;  // drawn by the service, which draws again after an ABORTED reply
  v1::JobSpec spec;
  std::string idempotency_key;
  Actor actor = {};
  std::string spec_digest = {};  // digest of the spec as submitted; empty: not compared
};
struct CancelJob {
  RequestId request;
  JobId job_id;
  std::optional<absl::Duration> grace_period;
  Actor actor = {};
};
struct HoldJob {
  RequestId request;
  JobId job_id;
  Actor actor = {};
};
struct ReleaseJob {
  RequestId request;
  JobId job_id;
  Actor actor = {};
};
struct RequeueJob {
  RequestId request;
  JobId job_id;
  Actor actor = {};
};
struct CheckpointJob {
  RequestId request;
  JobId job_id;
  Actor actor = {};
};
struct RemoveJob {
  RequestId request;
  JobId job_id;
  Actor actor = {};
};

// A request of an operator. Unknown nodes are ignored; the service reads the node afterwards.
struct CordonNode {
  NodeName node;
  std::string reason;
  bool drain = false;  // stop its jobs and queue them again
};
struct UncordonNode {
  NodeName node;
};
struct RemoveNode {
  RequestId request;
  NodeName node;
  Actor actor = {};
};

// Ends the conflicts of nodes; see takeovers.h.
struct RecoverJobs {
  RequestId request;
  std::vector<NodeName> nodes;  // empty: all in conflict
  bool discard = false;
  Actor actor = {};
};

// The first message on a worker's stream.
struct SessionOpened {
  SessionId session;
  v1::Hello hello;
  std::string observed_address;
  Corrections corrections = {};  // the service's corrections of the Hello
};
// A later message on the stream.
struct SessionMessage {
  SessionId session;
  v1::WorkerMessage message;  // has no kind if the service has dropped it
  Corrections corrections = {};
};
struct SessionClosed {
  SessionId session;
};

// NextDeadline() has been reached. `lag` is the delay of the service; leases and deadlines are
// extended by it, so that a slow coordinator does not declare nodes lost.
struct Tick {
  absl::Duration lag;
};

using Event = std::variant<SubmitJob, CancelJob, HoldJob, ReleaseJob, RequeueJob, CheckpointJob,
                           RemoveJob, CordonNode, UncordonNode, RemoveNode, RecoverJobs,
                           SessionOpened, SessionMessage, SessionClosed, Tick>;

// ------------------------------------------------------------------------------------------------
// Effects.

struct Send {
  SessionId session;
  v1::CoordinatorMessage message;
};
struct Reply {
  RequestId request;
  absl::StatusOr<v1::Job> job;  // an empty job answers RemoveNode and RecoverJobs
  bool already_existed = false;
  v1::RecoverJobsResponse recovered = {};
};
// Ends the stream with this status.
struct CloseSession {
  SessionId session;
  absl::Status status;
};

// The effects of a step. They may leave the process only after `writes` are on disk.
struct Effects {
  std::vector<store::Mutation> writes;
  std::vector<Send> sends;
  std::vector<Reply> replies;
  std::vector<CloseSession> closes;
  std::vector<JobId> changed_jobs;  // for watchers; each at most once
  std::vector<std::string> logs;    // lines for the coordinator's log
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_EVENT_H_
