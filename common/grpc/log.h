// Redirects the log of the gRPC library.
#ifndef MUSTER_COMMON_GRPC_LOG_H_
#define MUSTER_COMMON_GRPC_LOG_H_

#include <functional>
#include <string>

namespace muster {

// Passes each message that gRPC would write to stderr to `sink` instead, which must be thread-safe.
// Has no effect if GRPC_VERBOSITY is set. Process-wide; only the first call has an effect.
void TakeGrpcLog(std::function<void(const std::string&)> sink);

}  // namespace muster

#endif  // MUSTER_COMMON_GRPC_LOG_H_
