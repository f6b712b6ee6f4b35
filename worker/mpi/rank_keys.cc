#include "worker/mpi/rank_keys.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/grpc/deadline.h"
#include "common/grpc/status.h"
#include "common/rank_client.h"
#include "common/status.h"
#include "grpcpp/client_context.h"
#include "worker/mpi/open_mpi.h"

namespace muster::mpi {
namespace {

// A call that waits is repeated after this time.
constexpr absl::Duration kCallTimeout = absl::Seconds(60);
constexpr absl::Duration kRetryDelay = absl::Milliseconds(50);

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

absl::StatusOr<std::unique_ptr<RankKeys>> RankKeys::Open() {
  ASSIGN_OR_RETURN(const std::string socket, RankVariable("MUSTER_WORKER_SOCKET", kProgram));
  ASSIGN_OR_RETURN(v1::RankIdentity identity, ReadRankIdentity(kProgram));
  std::unique_ptr<RankKeys> keys(
      new RankKeys(std::move(identity), v1::RankService::NewStub(OpenWorkerChannel(socket))));
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
