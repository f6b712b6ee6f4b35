// Client of a coordinator for benchmarks.
#ifndef MUSTER_TESTS_BENCH_CLUSTER_CLIENT_H_
#define MUSTER_TESTS_BENCH_CLUSTER_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/muster/v1/cluster.grpc.pb.h"

namespace muster::bench {

// Thread-safe. Returns the errors of the calls.
class ClusterClient {
 public:
  explicit ClusterClient(const std::string& coordinator);

  // Returns the job's id.
  absl::StatusOr<std::string> Submit(const v1::JobSpec& spec);
  // Returns the job with its ranks and waits.
  absl::StatusOr<v1::Job> Get(const std::string& job);
  // Watches the job until it is in `state`. Errors: DEADLINE_EXCEEDED; FAILED_PRECONDITION if it
  // ends in another state.
  absl::Status AwaitState(const std::string& job, v1::JobState state, absl::Duration timeout);
  // Cancels the job and waits until all its processes have ended.
  absl::Status End(const std::string& job, absl::Duration timeout);
  absl::Status AwaitNodes(int count, absl::Duration timeout);

 private:
  const std::unique_ptr<v1::ClusterService::Stub> stub_;
};

}  // namespace muster::bench

#endif  // MUSTER_TESTS_BENCH_CLUSTER_CLIENT_H_
