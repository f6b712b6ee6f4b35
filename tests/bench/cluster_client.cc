#include "tests/bench/cluster_client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/grpc/status.h"
#include "common/status.h"
#include "common/version.h"

namespace muster::bench {

ClusterClient::ClusterClient(const std::string& coordinator)
    : stub_(v1::ClusterService::NewStub(OpenChannel(coordinator, grpc::ChannelArguments()))) {}

absl::StatusOr<std::string> ClusterClient::Submit(const v1::JobSpec& spec) {
  v1::SubmitJobRequest request;
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_spec() = spec;
  v1::SubmitJobResponse response;
  grpc::ClientContext context;
  RETURN_IF_ERROR(FromGrpcStatus(stub_->SubmitJob(&context, request, &response)));
  return response.job().job_id();
}

absl::StatusOr<v1::Job> ClusterClient::Get(const std::string& job) {
  v1::GetJobRequest request;
  request.set_job_id(job);
  v1::Job response;
  grpc::ClientContext context;
  RETURN_IF_ERROR(FromGrpcStatus(stub_->GetJob(&context, request, &response)));
  return response;
}

absl::Status ClusterClient::AwaitState(const std::string& job, v1::JobState state,
                                       absl::Duration timeout) {
  v1::WatchJobRequest request;
  request.set_job_id(job);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const auto stream = stub_->WatchJob(&context, request);
  v1::Job seen;
  while (stream->Read(&seen)) {
    if (seen.state() != state) continue;
    context.TryCancel();
    stream->Finish();
    return absl::OkStatus();
  }
  const std::string what = absl::StrCat("job ", job, " is ", v1::JobState_Name(seen.state()),
                                        ", not ", v1::JobState_Name(state));
  RETURN_IF_ERROR(Annotate(FromGrpcStatus(stream->Finish()), what));
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", seen.message()));
}

absl::Status ClusterClient::End(const std::string& job, absl::Duration timeout) {
  v1::CancelJobRequest request;
  request.set_job_id(job);
  v1::Job response;
  grpc::ClientContext context;
  RETURN_IF_ERROR(FromGrpcStatus(stub_->CancelJob(&context, request, &response)));
  return AwaitState(job, v1::CANCELLED, timeout);
}

absl::Status ClusterClient::AwaitNodes(int count, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    v1::ListNodesResponse response;
    grpc::ClientContext context;
    RETURN_IF_ERROR(FromGrpcStatus(stub_->ListNodes(&context, v1::ListNodesRequest(), &response)));
    const auto ready =
        std::count_if(response.nodes().begin(), response.nodes().end(),
                      [](const v1::Node& node) { return node.state() == v1::READY; });
    if (ready >= count) return absl::OkStatus();
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(ready, " of ", count, " nodes are ready"));
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
}

}  // namespace muster::bench
