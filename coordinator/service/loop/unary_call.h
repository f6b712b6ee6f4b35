// Shared by the implementations of ClusterService's methods.
#ifndef MUSTER_COORDINATOR_SERVICE_LOOP_UNARY_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_LOOP_UNARY_CALL_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/grpc/status.h"
#include "common/limits.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"

namespace muster::service {

inline grpc::ServerUnaryReactor* Finish(grpc::ServerUnaryReactor* reactor,
                                        const absl::Status& status) {
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

inline absl::Status ShuttingDown() {
  return absl::UnavailableError("the coordinator is shutting down");
}

inline absl::Status CheckSize(const google::protobuf::Message& response) {
  if (response.ByteSizeLong() <= limits::kMessageBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("response has ", response.ByteSizeLong(),
                                                   " bytes; the limit is ", limits::kMessageBytes));
}

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_LOOP_UNARY_CALL_H_
