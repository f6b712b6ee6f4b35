// Simulated workers without ranks: real gRPC sessions that send a coordinator the messages of real
// workers, as fast as possible.
//
// Every node has a stream, by default on its own connection like a real worker, and acts for all
// its ranks. Simultaneous events of a node's ranks are combined into one message, as in the worker.
// All nodes share one thread, to take as few CPU resources as possible from the coordinator on the
// same machine.
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
#include "common/time/time.h"
#include "grpcpp/completion_queue.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::bench {

struct SimulatedNodesOptions {
  std::string coordinator;  // HOST:PORT
  uint32_t nodes = 1;
  uint32_t ranks_per_node = 1;
  uint32_t connections = 0;  // connections shared by the nodes; 0: one per node
  bool unfolded = false;     // a report per rank, as if the ranks never acted at the same time
  bool reconnect = false;    // when a stream ends, open another one, with the ranks of the last job
};

// Stages that the nodes pass in each job.
enum class Milestone {
  kWelcomed,  // once per connection, not per job
  kLaunched,  // received Launch
  kWorld,     // received World
  kUniqueId,  // received the value of rank 0's key
  kStopped,   // received StopGeneration
};
inline constexpr int kMilestones = 5;

// Thread-safe except for construction and destruction.
class SimulatedNodes {
 public:
  // A notice of the coordinator about the ranks that a job waits for, as received by a node.
  struct Notice {
    SteadyTime time;
    v1::WaitNotice notice;
  };

  explicit SimulatedNodes(SimulatedNodesOptions options);
  // Ends the streams.
  ~SimulatedNodes();

  // Opens all streams; nodes send Hello, and heartbeats after Welcome.
  void Connect();

  // Called before each job; resets the state of the previous job. `silent_rank` starts but never
  // joins.
  void ExpectJob(std::optional<uint32_t> silent_rank);

  // Returns when the last node reached the milestone. Errors: DEADLINE_EXCEEDED with the number of
  // nodes that did, or the status of a stream that ended.
  absl::StatusOr<SteadyTime> Await(Milestone milestone, absl::Duration timeout);

  // Runs `count` consecutive barriers on every node. Returns the seconds from a node's arrival to
  // its release, for all nodes and barriers. Errors as Await's.
  absl::StatusOr<std::vector<double>> RunBarriers(uint32_t count, absl::Duration timeout);
  // Exchanges the unique ids of `count` NCCL communicators of all ranks, one after the other: the
  // root ranks put them into the key store as the nccl backend does, and every node requests them
  // at once. Returns for each the seconds from the requests until the last node has them. Errors as
  // Await's.
  absl::StatusOr<std::vector<double>> ExchangeNcclIds(uint32_t count, absl::Duration timeout);
  // All ranks but one arrive at the next barrier; the silent rank's node sends its message after
  // the delay with which workers combine messages. Returns when the last message has been passed to
  // gRPC.
  void ArriveWithout(uint32_t silent_rank);

  // Returns the notices received since ExpectJob.
  std::vector<Notice> TakeNotices();

  // Makes Await(kWelcomed) wait until all nodes have been welcomed again.
  void ExpectReconnection();
  // The longest time since the last call that a heartbeat of a connected node waited, or waits, for
  // its acknowledgement.
  absl::Duration TakeLongestHeartbeat();

 private:
  class Node;

  uint32_t ranks() const { return options_.nodes * options_.ranks_per_node; }
  // Number of root ranks, as with an NCCL version that supports several ids.
  uint32_t NcclRoots() const;

  void Run();
  void SendHeartbeats(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitCount(const uint32_t& count, absl::string_view what, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Called by the nodes.
  void Reached(Milestone milestone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PassedBarrier(SteadyTime arrived) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReceivedNcclIds() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Failed(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Acknowledged(SteadyTime sent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SimulatedNodesOptions options_;
  grpc::CompletionQueue queue_;

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Node>> nodes_ ABSL_GUARDED_BY(mutex_);
  std::array<uint32_t, kMilestones> reached_ ABSL_GUARDED_BY(mutex_){};
  std::array<SteadyTime, kMilestones> last_reached_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint32_t> silent_rank_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_barrier_ ABSL_GUARDED_BY(mutex_) =
      0;  // last barrier to which nodes proceed automatically
  uint32_t done_with_barriers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<double> barrier_seconds_ ABSL_GUARDED_BY(mutex_);
  uint32_t nccl_groups_ ABSL_GUARDED_BY(mutex_) =
      0;  // groups whose ids have been or are being exchanged
  uint32_t have_nccl_ids_ ABSL_GUARDED_BY(mutex_) = 0;  // number of nodes
  SteadyTime last_nccl_ids_ ABSL_GUARDED_BY(mutex_);
  std::vector<Notice> notices_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime next_beat_ ABSL_GUARDED_BY(mutex_) = SteadyTime::Infinite();
  size_t next_to_beat_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration heartbeat_interval_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1);
  uint64_t heartbeats_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration longest_heartbeat_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace muster::bench

#endif  // MUSTER_TESTS_BENCH_SIMULATED_NODES_H_
