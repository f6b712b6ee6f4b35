// Collective operations among the ranks of one group in one generation.
//
// All ranks of a group call the same operations in the same order with the same counts. An
// operation starts when it is issued and is complete when its Work is. Counts are in elements,
// never bytes. After an error or an Abort the communicator is unusable: every Work, including later
// ones, completes with that status.
#ifndef MUSTER_COLLECTIVES_COMMUNICATOR_H_
#define MUSTER_COLLECTIVES_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/data_type.h"

namespace muster::collectives {

using kernels::DataType;
using kernels::SizeOf;

enum class ReduceOp { kSum, kMin, kMax };

// Status payload that names the lost job rank as a decimal number. A failure that carries it is
// reported as a probable consequence (FailureReport.peer_rank).
inline constexpr char kPeerRankPayload[] = "muster/peer-rank";

// Handle of an operation in progress. Thread-safe.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks, spinning briefly and then sleeping. Returns OK, or: ABORTED (Abort was called, or the
  // job's generation ended), UNAVAILABLE (a peer was lost; payload kPeerRankPayload where known),
  // DEADLINE_EXCEEDED (no progress within the group's timeout; names the ranks that have not
  // arrived where the backend can identify them).
  virtual absl::Status Wait() = 0;
  virtual bool Done() const = 0;
  // Orders this operation before all work that is enqueued on the device afterwards; on CPUs the
  // same as Wait. Returns an error if the operation could not start; a later failure is reported
  // only by Communicator::status(). Called by the thread that computes.
  virtual absl::Status Join() { return Wait(); }
};

// Memory that a backend can access most efficiently (a shared segment, registered memory, plain
// heap). Freed with the object, which must be destroyed no later than its communicator.
class Allocation {
 public:
  virtual ~Allocation() = default;
  virtual void* data() = 0;
  virtual size_t size_bytes() const = 0;
  // Keeps the memory until all ranks of the group have ended, also when this object is destroyed:
  // peers still read it after this rank has ended.
  virtual void KeepForPeers() {}
};

// Collective and point-to-point operations on one group.
//
// Thread-safe: calls from several threads are ordered by arrival, and Abort may be called from any
// thread at any time. send == recv is in place where both have the same size; ReduceScatter's recv
// may also be this rank's own segment of send, and AllGather's send its own segment of recv.
// Buffers must not overlap otherwise. An operation uses its buffers until its Work is done, also
// after an error or Abort: another Work may complete earlier, which implies nothing about this
// one's buffers.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;  // this rank's number in the group
  virtual uint32_t size() const = 0;
  virtual absl::string_view backend() const = 0;

  // recv[i] = op over ranks of send[i]; bit-identical on all ranks, and in every run with the same
  // ranks.
  virtual std::shared_ptr<Work> AllReduce(const void* send, void* recv, size_t count, DataType type,
                                          ReduceOp op) = 0;
  // send has size() * recv_count elements; rank r receives the reduction of segment r.
  virtual std::shared_ptr<Work> ReduceScatter(const void* send, void* recv, size_t recv_count,
                                              DataType type, ReduceOp op) = 0;
  // recv has size() * send_count elements, in rank order.
  virtual std::shared_ptr<Work> AllGather(const void* send, void* recv, size_t send_count,
                                          DataType type) = 0;
  virtual std::shared_ptr<Work> Broadcast(void* data, size_t count, DataType type,
                                          uint32_t root) = 0;
  virtual std::shared_ptr<Work> Reduce(const void* send, void* recv, size_t count, DataType type,
                                       ReduceOp op, uint32_t root) = 0;
  // recv (size() * send_count elements) is used on the root only; may be null elsewhere.
  virtual std::shared_ptr<Work> Gather(const void* send, void* recv, size_t send_count,
                                       DataType type, uint32_t root) = 0;
  // send (size() * recv_count elements) is used on the root only; may be null elsewhere.
  virtual std::shared_ptr<Work> Scatter(const void* send, void* recv, size_t recv_count,
                                        DataType type, uint32_t root) = 0;
  // Both have size() * count elements; segment i of send goes to rank i.
  virtual std::shared_ptr<Work> AllToAll(const void* send, void* recv, size_t count,
                                         DataType type) = 0;
  virtual std::shared_ptr<Work> Send(const void* data, size_t count, DataType type,
                                     uint32_t peer) = 0;
  virtual std::shared_ptr<Work> Recv(void* data, size_t count, DataType type, uint32_t peer) = 0;
  virtual std::shared_ptr<Work> Barrier() = 0;

  // Errors: RESOURCE_EXHAUSTED. Collective: all ranks allocate the same sizes in the same order.
  virtual absl::StatusOr<std::unique_ptr<Allocation>> Allocate(size_t size_bytes) = 0;

  // Address in this process of `rank`'s memory of a collective allocation, or null if this process
  // cannot read and write it directly, in which case it is null for every rank but this one. The
  // caller orders accesses with collectives.
  virtual void* PeerData(Allocation& allocation, uint32_t rank) {
    return rank == this->rank() ? allocation.data() : nullptr;
  }

  // Ends all operations on this rank within two seconds, whatever the peers do. Never blocks.
  virtual void Abort(const absl::Status& reason) = 0;
  // OK, or the status with which every Work completes from now on.
  virtual absl::Status status() const = 0;

  // Word that device kernels read to detect that the communicator has failed: nonzero before any
  // operation is cut short. Valid as long as the communicator; null on CPUs.
  virtual const uint32_t* failed_flag() const { return nullptr; }
  // Longest time without progress before operations fail.
  virtual absl::Duration timeout() const { return absl::InfiniteDuration(); }
};

// Key-value store through which the ranks of a group find each other; each key is written once.
// Thread-safe.
class KeyStore {
 public:
  virtual ~KeyStore() = default;
  virtual absl::Status Put(absl::string_view key, absl::string_view value) = 0;
  // Waits until the key exists. DEADLINE_EXCEEDED, ABORTED (the generation has ended).
  virtual absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) = 0;
};

class TokenBucket;
struct NcclParts;

// Options of one group in one generation. `id` is the group's unique id, generated by its lowest
// rank and distributed by the coordinator: no two groups share an id, so state of an older
// generation cannot be mistaken for this one's.
struct GroupOptions {
  std::string name;   // WORLD, NODE, LOCAL, CROSS
  std::string id;     // 128 random bits, hex
  uint32_t rank = 0;  // this rank's number in the group
  uint32_t size = 1;
  std::vector<uint32_t> members;  // job ranks, indexed by rank in the group
  KeyStore* store = nullptr;      // outlives the communicator
  std::string interface_address;  // numeric address at which peers reach this rank; for gloo
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration timeout = absl::Seconds(30);  // limit without any progress
  // Limits the rate of sends through gloo, to emulate a slower network in measurements. Outlives
  // the communicator; null: no limit.
  TokenBucket* send_limit = nullptr;
  // Dependencies of the nccl backend; must outlive the call that creates the communicator. Null
  // where ranks compute on CPUs.
  const NcclParts* nccl = nullptr;
  // Ranks per node, if nccl's AllReduce is to be hierarchical; the group's ranks are then numbered
  // node by node. 0: flat.
  uint32_t levels_of = 0;
  // Polled by another thread while nccl connects; a non-OK status cancels connecting, for example
  // because the generation has ended.
  std::function<absl::Status()> cancelled;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_COMMUNICATOR_H_
