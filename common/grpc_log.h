// What gRPC itself has to say.
#ifndef MUSTER_COMMON_GRPC_LOG_H_
#define MUSTER_COMMON_GRPC_LOG_H_

#include <functional>
#include <string>

namespace muster {

// gRPC would write lines of its own to stderr. From now on each goes to `sink` instead, from
// whichever thread, unless GRPC_VERBOSITY asks for them. Process-wide, the first caller's sink
// counts.
void TakeGrpcLog(std::function<void(const std::string&)> sink);

}  // namespace muster

#endif  // MUSTER_COMMON_GRPC_LOG_H_
