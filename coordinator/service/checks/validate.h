// Checks that messages from outside are within limits, independently of the coordinator's state.
// The core checks what depends on its state.
#ifndef MUSTER_COORDINATOR_SERVICE_CHECKS_VALIDATE_H_
#define MUSTER_COORDINATOR_SERVICE_CHECKS_VALIDATE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/identity.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// Checks that this build and a peer that speaks `oldest` to `newest` (0: only `oldest`) have a
// common protocol version. `who` names the peer in the message. Errors: INVALID_ARGUMENT without a
// version, FAILED_PRECONDITION.
absl::Status CheckProtocolVersion(uint32_t oldest, uint32_t newest, absl::string_view who);

// Checks a submission, except for its protocol version and the contents of its spec.
absl::Status ValidateSubmit(const v1::SubmitJobRequest& request);

// Checks a job id or a prefix of one.
absl::Status ValidateJobName(absl::string_view job);

absl::Status ValidateNodeName(absl::string_view name);
// Checks the node name and reason of a cordon or drain.
absl::Status ValidateCordon(absl::string_view node, absl::string_view reason);

absl::Status ValidateDrain(const v1::DrainNodeRequest& request);

// Checks the cancellation of a job or an array.
absl::Status ValidateCancel(absl::string_view job, const google::protobuf::Duration& grace_period);

absl::Status ValidateReadLog(const v1::ReadLogRequest& request);

absl::Status ValidateFindMissingFiles(const v1::FindMissingFilesRequest& request);

// Checks the first message of an exec, a later one, and one of its output.
absl::Status ValidateExecStart(const v1::ExecInput& input);
absl::Status ValidateExecInput(const v1::ExecInput& input);
absl::Status ValidateExecOutput(const v1::ExecOutput& output);

absl::Status ValidateGetReport(const v1::GetReportRequest& request);

absl::Status ValidateReadFiles(const v1::ReadFilesRequest& request);

// Checks what identifies the worker in the first message of a session; see quarantine.h for the
// rest. Errors: FAILED_PRECONDITION for another protocol version, otherwise INVALID_ARGUMENT.
absl::Status ValidateEnrollNode(const v1::EnrollNodeRequest& request);
absl::Status ValidateCreateJoinToken(const v1::CreateJoinTokenRequest& request, absl::Time now);
absl::Status ValidateHello(const v1::Hello& hello);

// The IP address in grpc::ServerContext::peer(), e.g. "ipv4:127.0.0.1:4711"; empty for other kinds
// of peer.
std::string PeerHost(absl::string_view peer);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CHECKS_VALIDATE_H_
