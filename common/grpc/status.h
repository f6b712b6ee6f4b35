// Conversions between absl::Status and grpc::Status, whose codes have the same numbers.
#ifndef MUSTER_COMMON_GRPC_STATUS_H_
#define MUSTER_COMMON_GRPC_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace muster {

inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()));
}

inline absl::Status FromGrpcStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace muster

#endif  // MUSTER_COMMON_GRPC_STATUS_H_
