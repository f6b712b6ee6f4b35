// Whether what arrived from outside is within bounds, by its own bytes. What depends on the
// coordinator's state is the core's to check.
#ifndef MUSTER_COORDINATOR_SERVICE_VALIDATE_H_
#define MUSTER_COORDINATOR_SERVICE_VALIDATE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// INVALID_ARGUMENT for none, FAILED_PRECONDITION for another than ours. `who` names the speaker.
absl::Status CheckProtocolVersion(uint32_t version, absl::string_view who);

// All but the protocol version and the spec's contents.
absl::Status ValidateSubmit(const v1::SubmitJobRequest& request);

// A job id or the start of one.
absl::Status ValidateJobName(absl::string_view job);

absl::Status ValidateNodeName(absl::string_view name);
// What an operator says of a node.
absl::Status ValidateCordon(absl::string_view node, absl::string_view reason);

absl::Status ValidateCancel(const v1::CancelJobRequest& request);

absl::Status ValidateReadLog(const v1::ReadLogRequest& request);

// A session's first message. FAILED_PRECONDITION for another protocol version, otherwise
// INVALID_ARGUMENT.
absl::Status ValidateHello(const v1::Hello& hello);

// Any later one: INVALID_ARGUMENT; a second Hello too.
absl::Status ValidateWorkerMessage(const v1::WorkerMessage& message);

// The host's number out of grpc::ServerContext::peer(), e.g. "ipv4:127.0.0.1:4711"; empty for other
// kinds of peer.
std::string PeerHost(absl::string_view peer);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_VALIDATE_H_
