#include "worker/mpi/rank_keys.h"

#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/grpc_channel.h"
#include "common/grpc_deadline.h"
#include "common/grpc_status.h"
#include "common/status.h"
#include "grpcpp/client_context.h"

namespace muster::mpi {
namespace {

// A call that waits is repeated after this time.
constexpr absl::Duration kCallTimeout = absl::Seconds(60);
constexpr absl::Duration kRetryDelay = absl::Milliseconds(50);

absl::StatusOr<std::string> Variable(const Environment& environment, const char* name) {
  const absl::string_view value = ValueOf(environment, name);
  if (value.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not set; muster-mpi must be started by muster-worker"));
  }
  return std::string(value);
}

template <typename Number>
absl::StatusOr<Number> NumberVariable(const Environment& environment, const char* name) {
  ASSIGN_OR_RETURN(const std::string text, Variable(environment, name));
  Number number = 0;
  if (!absl::SimpleAtoi(text, &number)) {
    return absl::InvalidArgumentError(absl::StrCat(name, "=", text, " is not a number"));
  }
  return number;
}

template <typename Request, typename Response>
absl::Status Call(v1::RankService::Stub& stub,
                  grpc::Status (v1::RankService::Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Response*),
                  const Request& request, Response& response) {
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kCallTimeout));
    context.set_wait_for_ready(true);
    const absl::Status status = FromGrpcStatus((stub.*method)(&context, request, &response));
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
    absl::SleepFor(kRetryDelay);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankKeys>> RankKeys::Open(const Environment& environment) {
  v1::RankIdentity identity;
  ASSIGN_OR_RETURN(const std::string socket, Variable(environment, "MUSTER_WORKER_SOCKET"));
  ASSIGN_OR_RETURN(*identity.mutable_job_id(), Variable(environment, "MUSTER_JOB_ID"));
  ASSIGN_OR_RETURN(*identity.mutable_token(), Variable(environment, "MUSTER_RANK_TOKEN"));
  ASSIGN_OR_RETURN(const auto generation,
                   NumberVariable<uint64_t>(environment, "MUSTER_GENERATION"));
  ASSIGN_OR_RETURN(const auto rank, NumberVariable<uint32_t>(environment, "RANK"));
  identity.set_generation(generation);
  identity.set_rank(rank);
  grpc::ChannelArguments arguments;
  // Reconnect quickly to a restarted worker.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  std::unique_ptr<RankKeys> keys(new RankKeys(
      std::move(identity), v1::RankService::NewStub(OpenChannel(socket, std::move(arguments)))));
  return keys;
}

absl::Status RankKeys::Put(const std::string& key, const std::string& value) {
  v1::PutRankKeyRequest request;
  *request.mutable_identity() = identity_;
  request.set_key(key);
  request.set_value(value);
  v1::PutRankKeyResponse response;
  return Call(*stub_, &v1::RankService::Stub::PutKey, request, response);
}

absl::StatusOr<std::string> RankKeys::Get(const std::string& key) {
  v1::GetRankKeyRequest request;
  *request.mutable_identity() = identity_;
  request.set_key(key);
  v1::GetRankKeyResponse response;
  RETURN_IF_ERROR(Call(*stub_, &v1::RankService::Stub::GetKey, request, response));
  return std::move(*response.mutable_value());
}

}  // namespace muster::mpi
