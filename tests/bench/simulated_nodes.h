// Workers without ranks: real gRPC sessions that say to a coordinator what real workers would, as
// fast as they can.
//
// Every node has a stream, by default on a connection of its own as a real worker has, and answers
// for all its ranks. What ranks of one node do at the same moment is folded into one message, as
// the worker does. All nodes share one thread, so that they take as little of the machine as they
// can from the coordinator beside them.
#ifndef MUSTER_TESTS_BENCH_SIMULATED_NODES_H_
#define MUSTER_TESTS_BENCH_SIMULATED_NODES_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time.h"
#include "grpcpp/completion_queue.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::bench {

struct SimulatedNodesOptions {
  std::string coordinator;  // HOST:PORT
  uint32_t nodes = 1;
  uint32_t ranks_per_node = 1;
  uint32_t connections = 0;  // that the nodes share; 0: one each
  bool unfolded =
      false;  // a report for each rank, as if they never did anything at the same moment
};

// What the nodes go through with each job.
enum class Milestone {
  kWelcomed,  // once, not per job
  kLaunched,  // Launch has arrived
  kWorld,     // World has arrived
  kUniqueId,  // the value of rank 0's key has arrived
  kStopped,   // StopGeneration has arrived
};
inline constexpr int kMilestones = 5;

// Thread-safe but for construction and destruction.
class SimulatedNodes {
 public:
  // A notice of the coordinator about what a job waits for, as it came to a node.
  struct Notice {
    SteadyTime time;
    v1::WaitNotice notice;
  };

  explicit SimulatedNodes(SimulatedNodesOptions options);
  // Ends the streams.
  ~SimulatedNodes();

  // Opens all streams; nodes say Hello, and heartbeats follow the Welcome.
  void Connect();

  // Before each job: forgets the last one. `silent_rank` starts but never joins.
  void ExpectJob(std::optional<uint32_t> silent_rank);

  // When the last node reached it. Errors: DEADLINE_EXCEEDED with how many did, or what a stream
  // ended with.
  absl::StatusOr<SteadyTime> Await(Milestone milestone, absl::Duration timeout);

  // Every node goes through so many barriers, one right after the other. Seconds from a node's
  // arrival to its release, of all nodes and barriers. Errors as Await's.
  absl::StatusOr<std::vector<double>> RunBarriers(uint32_t count, absl::Duration timeout);
  // The unique ids of so many NCCL communicators of all ranks, one after the other: the ranks that
  // make them put them into the key store as the nccl backend does, and every node asks at once.
  // Seconds from the asking until they are at the last node, of each. Errors as Await's.
  absl::StatusOr<std::vector<double>> ExchangeNcclIds(uint32_t count, absl::Duration timeout);
  // All ranks but one arrive at the next barrier; what the silent one's node has is sent after the
  // delay with which workers fold. Returns when the last message has been handed to gRPC.
  void ArriveWithout(uint32_t silent_rank);

  // What came since ExpectJob.
  std::vector<Notice> TakeNotices();

 private:
  class Node;

  uint32_t ranks() const { return options_.nodes * options_.ranks_per_node; }
  // As a library has it that takes several ids.
  uint32_t NcclRoots() const;

  void Run();
  void SendHeartbeats(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitCount(const uint32_t& count, absl::string_view what, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Of the nodes.
  void Reached(Milestone milestone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PassedBarrier(SteadyTime arrived) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GotNcclIds() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Failed(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SimulatedNodesOptions options_;
  grpc::CompletionQueue queue_;

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Node>> nodes_ ABSL_GUARDED_BY(mutex_);
  std::array<uint32_t, kMilestones> reached_ ABSL_GUARDED_BY(mutex_){};
  std::array<SteadyTime, kMilestones> last_reached_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint32_t> silent_rank_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_barrier_ ABSL_GUARDED_BY(mutex_) = 0;  // that nodes go on to by themselves
  uint32_t done_with_barriers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<double> barrier_seconds_ ABSL_GUARDED_BY(mutex_);
  uint32_t nccl_groups_ ABSL_GUARDED_BY(mutex_) = 0;    // whose ids were exchanged or are now
  uint32_t have_nccl_ids_ ABSL_GUARDED_BY(mutex_) = 0;  // nodes
  SteadyTime last_nccl_ids_ ABSL_GUARDED_BY(mutex_);
  std::vector<Notice> notices_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime next_beat_ ABSL_GUARDED_BY(mutex_) = SteadyTime::Infinite();
  size_t next_to_beat_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration heartbeat_interval_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1);
  uint64_t heartbeats_ ABSL_GUARDED_BY(mutex_) = 0;

  std::thread thread_;
};

}  // namespace muster::bench

#endif  // MUSTER_TESTS_BENCH_SIMULATED_NODES_H_
