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
#include "common/security/node_certificate.h"
#include "coordinator/core/actor.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "spec/array_task.h"

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
  // The tasks of spec.array, by index; empty if it has none. The job id is that of the array.
  std::vector<spec::ArrayTask> tasks = {};
};
// In the following requests, `job` is the id of a job, its name or a prefix of its id; see
// JobNames::Resolve.
struct CancelJob {
  RequestId request;
  std::string job;
  std::optional<absl::Duration> grace_period = std::nullopt;
  Actor actor = {};
};
// Cancels the tasks of the array that have not ended.
struct CancelArray {
  RequestId request;
  std::string array;
  std::optional<absl::Duration> grace_period = std::nullopt;
  Actor actor = {};
};
struct HoldJob {
  RequestId request;
  std::string job;
  Actor actor = {};
};
struct ReleaseJob {
  RequestId request;
  std::string job;
  Actor actor = {};
};
struct RequeueJob {
  RequestId request;
  std::string job;
  Actor actor = {};
};
struct CheckpointJob {
  RequestId request;
  std::string job;
  Actor actor = {};
};
// The actor is an admin.
struct ShareJob {
  RequestId request;
  std::string job;
  bool shared = true;
  Actor actor = {};
};
struct RemoveJob {
  RequestId request;
  std::string job;
  Actor actor = {};
};

// Sets a secret of the actor, or removes it if the value is empty.
struct SetSecret {
  RequestId request;
  std::string name;
  std::string value;
  Actor actor = {};
};

// A join token; the service has drawn its id and its secret.
struct CreateJoinToken {
  RequestId request;
  std::string id;
  std::string digest;  // of the secret
  absl::Time expire_time;
  uint32_t uses = 1;
  NodeName node;  // the only node that may use it; empty: any
  Actor actor = {};
};
struct RevokeJoinToken {
  RequestId request;
  std::string id;
  Actor actor = {};
};
// A node asks for its first certificate. The service issues it, with the serial number that it has
// drawn, once the reply is OK.
struct EnrollNode {
  RequestId request;
  std::string token_digest;
  NodeName node;
  std::string machine_id;
  std::string serial;
  absl::Time expire_time;
};
// A node that has presented its current certificate asks for the next one.
struct RenewNode {
  RequestId request;
  security::NodeCertificate current;
  std::string serial;
  absl::Time expire_time;
};

// A request of an operator. Unknown nodes are ignored; the service reads the node afterwards.
struct CordonNode {
  NodeName node;
  std::string reason;
  bool drain = false;  // stop its jobs and queue them again
  // Ranks that still run after this time are killed; not set: after their grace period.
  std::optional<absl::Duration> deadline = std::nullopt;
};
struct UncordonNode {
  NodeName node;
};
// Starts the node's self-test. Errors: NOT_FOUND, FAILED_PRECONDITION.
struct TestNode {
  RequestId request;
  NodeName node;
};
// An operator confirms that the node, which is not connected, is lost: its ranks have ended.
struct ConfirmNodeLost {
  RequestId request;
  NodeName node;
  Actor actor = {};
};
struct RemoveNode {
  RequestId request;
  NodeName node;
  Actor actor = {};
  bool force = false;  // also a node that is connected or has ranks
};

// Ends the conflicts of nodes; see sessions/takeovers.h.
struct RecoverJobs {
  RequestId request;
  std::vector<NodeName> nodes;  // empty: all in conflict
  bool discard = false;
  Actor actor = {};
};

// The service listens for connections from now on: a worker's connection may have been refused
// until then. Leases begin again, and end only after this event.
struct Listening {
  std::string machine_id;
  std::string address;
};
// The service will stop listening when the effects of this event are released: no lease ends any
// more.
struct Closing {};

// The first message on a worker's stream.
struct SessionOpened {
  SessionId session;
  v1::Hello hello;
  std::string observed_address;
  Corrections corrections = {};  // the service's corrections of the Hello
  // The node's certificate that the worker has presented.
  std::optional<security::NodeCertificate> certificate = std::nullopt;
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

// NextDeadline() has been reached. `lag` is the time in which the service could not receive
// messages; leases and deadlines of messages are extended by it, so that a coordinator that was
// stopped does not declare nodes lost.
struct Tick {
  absl::Duration lag;
};

using Event = std::variant<SubmitJob, CancelJob, CancelArray, HoldJob, ReleaseJob, RequeueJob,
                           CheckpointJob, ShareJob, RemoveJob, SetSecret, CreateJoinToken,
                           RevokeJoinToken, EnrollNode, RenewNode, CordonNode, UncordonNode,
                           TestNode, RemoveNode, ConfirmNodeLost, RecoverJobs, Listening, Closing,
                           SessionOpened, SessionMessage, SessionClosed, Tick>;

// ------------------------------------------------------------------------------------------------
// Effects.

struct Send {
  SessionId session;
  v1::CoordinatorMessage message;
};
struct Reply {
  RequestId request;
  // An empty job answers TestNode, RemoveNode, ConfirmNodeLost, RecoverJobs, SetSecret and requests
  // about identities.
  absl::StatusOr<v1::Job> job;
  bool already_existed = false;
  std::optional<v1::JobArray> array = {};  // of SubmitJob, if the spec has one, and of CancelArray
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
  std::vector<JobId> changed_jobs;                // for watchers; each at most once
  std::vector<std::string> logs;                  // lines for the coordinator's log
  std::vector<std::string> revoked_certificates;  // serial numbers
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_EVENT_H_
