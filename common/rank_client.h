// How a program that muster-worker has started as a rank reaches the worker's RankService.
#ifndef MUSTER_COMMON_RANK_CLIENT_H_
#define MUSTER_COMMON_RANK_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "proto/muster/v1/rank.pb.h"

namespace muster {

// A variable that the worker sets in the environment of every rank. INVALID_ARGUMENT if it is
// missing or empty; the message names the variable and `program`.
absl::StatusOr<std::string> RankVariable(const char* name, const char* program);

// The identity of this rank, from its environment. Errors as RankVariable's.
absl::StatusOr<v1::RankIdentity> ReadRankIdentity(const char* program);

// A channel to `target`, the value of MUSTER_WORKER_SOCKET, that connects quickly again to a
// restarted worker.
std::shared_ptr<grpc::Channel> OpenWorkerChannel(const std::string& target);

}  // namespace muster

#endif  // MUSTER_COMMON_RANK_CLIENT_H_
