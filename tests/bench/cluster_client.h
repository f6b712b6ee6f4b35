// What a benchmark asks of a coordinator, as the CLI would.
#ifndef MUSTER_TESTS_BENCH_CLUSTER_CLIENT_H_
#define MUSTER_TESTS_BENCH_CLUSTER_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/muster/v1/cluster.grpc.pb.h"

namespace muster::bench {

// Thread-safe. Errors are those of the calls.
class ClusterClient {
 public:
  explicit ClusterClient(const std::string& coordinator);

  // The job's id.
  absl::StatusOr<std::string> Submit(const v1::JobSpec& spec);
  // With ranks and waits.
  absl::StatusOr<v1::Job> Get(const std::string& job);
  // By watching the job. Errors: DEADLINE_EXCEEDED; FAILED_PRECONDITION when it is over in another
  // state.
  absl::Status AwaitState(const std::string& job, v1::JobState state, absl::Duration timeout);
  // Cancels it, and returns when nothing of it is left.
  absl::Status End(const std::string& job, absl::Duration timeout);
  absl::Status AwaitNodes(int count, absl::Duration timeout);

 private:
  const std::unique_ptr<v1::ClusterService::Stub> stub_;
};

}  // namespace muster::bench

#endif  // MUSTER_TESTS_BENCH_CLUSTER_CLIENT_H_
