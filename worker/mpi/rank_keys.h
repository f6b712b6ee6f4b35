// A rank's client of its generation's write-once keys, which its worker serves.
#ifndef MUSTER_WORKER_MPI_RANK_KEYS_H_
#define MUSTER_WORKER_MPI_RANK_KEYS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/rank.grpc.pb.h"

namespace muster::mpi {

// Thread-safe. Calls are repeated while the worker restarts; they end at the latest with ABORTED
// when the generation is stopped.
class RankKeys {
 public:
  // With the identity in this process's environment. INVALID_ARGUMENT names a variable that is
  // missing or malformed.
  static absl::StatusOr<std::unique_ptr<RankKeys>> Open();

  // ALREADY_EXISTS: the key has another value; RESOURCE_EXHAUSTED: over a limit.
  absl::Status Put(const std::string& key, const std::string& value);
  // Waits until the key exists.
  absl::StatusOr<std::string> Get(const std::string& key);

 private:
  RankKeys(v1::RankIdentity identity, std::unique_ptr<v1::RankService::Stub> stub)
      : identity_(std::move(identity)), stub_(std::move(stub)) {}

  const v1::RankIdentity identity_;
  const std::unique_ptr<v1::RankService::Stub> stub_;
};

}  // namespace muster::mpi

#endif  // MUSTER_WORKER_MPI_RANK_KEYS_H_
