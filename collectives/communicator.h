// Collective operations among the ranks of one group in one generation.
//
// All ranks of a group call the same operations in the same order with the same counts; an
// operation starts when it is issued and is done when its Work says so. Counts are elements, never
// bytes. After an error or an Abort the communicator is finished: every Work, also later ones, ends
// with that status.
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

// The payload of a status that says which rank of the job was lost: its decimal number. A failure
// with it is reported as a probable consequence (FailureReport.peer_rank).
inline constexpr char kPeerRankPayload[] = "muster/peer-rank";

// An operation under way. Thread-safe.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks, spinning briefly and then sleeping. OK, or: ABORTED (Abort was called, or the job's
  // generation ended), UNAVAILABLE (a peer went away; payload kPeerRankPayload where known),
  // DEADLINE_EXCEEDED (no progress within the group's time-out; names the ranks that have not
  // arrived where the backend can tell).
  virtual absl::Status Wait() = 0;
  virtual bool Done() const = 0;
  // What the operation's device is given to compute from now on begins after it; of ranks on
  // processors the same as Wait. The status of what could not begin: how it ends only
  // Communicator::status() tells then. By the thread that computes.
  virtual absl::Status Join() { return Wait(); }
};

// Memory that a backend likes best (a shared segment, registered memory, plain heap). Freed with
// the object, and no later than its communicator.
class Allocation {
 public:
  virtual ~Allocation() = default;
  virtual void* data() = 0;
  virtual size_t size_bytes() const = 0;
};

// Thread-safe: calls from several threads are ordered by arrival, and Abort may come from any
// thread at any time. send == recv is in place where both are of the same size; ReduceScatter's
// recv may also be the rank's own part of send, and AllGather's send its own part of recv. Buffers
// must not overlap otherwise. An operation uses its buffers until its Work is done, after an error
// or Abort too: another Work may end sooner, and says nothing about this one's buffers.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;  // in the group
  virtual uint32_t size() const = 0;
  virtual absl::string_view backend() const = 0;

  // recv[i] = op over ranks of send[i]; bit-equal on all ranks, and in every run with the same
  // ranks.
  virtual std::shared_ptr<Work> AllReduce(const void* send, void* recv, size_t count, DataType type,
                                          ReduceOp op) = 0;
  // send has size() * recv_count elements; rank r receives the reduction of its r-th part.
  virtual std::shared_ptr<Work> ReduceScatter(const void* send, void* recv, size_t recv_count,
                                              DataType type, ReduceOp op) = 0;
  // recv has size() * send_count elements, in the order of ranks.
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
  // Both have size() * count elements; part i of send goes to rank i.
  virtual std::shared_ptr<Work> AllToAll(const void* send, void* recv, size_t count,
                                         DataType type) = 0;
  virtual std::shared_ptr<Work> Send(const void* data, size_t count, DataType type,
                                     uint32_t peer) = 0;
  virtual std::shared_ptr<Work> Recv(void* data, size_t count, DataType type, uint32_t peer) = 0;
  virtual std::shared_ptr<Work> Barrier() = 0;

  // Errors: RESOURCE_EXHAUSTED. Collective: all ranks allocate the same sizes in the same order.
  virtual absl::StatusOr<std::unique_ptr<Allocation>> Allocate(size_t size_bytes) = 0;

  // Where `rank` has its part of an allocation of this communicator, if this process can read and
  // write it directly; null where it cannot, and then for every rank but this one. Who touches it
  // when is for the caller to order, by collectives.
  virtual void* PeerData(Allocation& allocation, uint32_t rank) {
    return rank == this->rank() ? allocation.data() : nullptr;
  }

  // Ends everything under way on this rank within two seconds, whatever the peers do. Never blocks.
  virtual void Abort(const absl::Status& reason) = 0;
  // OK, or what every Work ends with from now on.
  virtual absl::Status status() const = 0;

  // Where a device's kernels see that the communicator has failed: not 0 before anything under way
  // is cut short. As long as the communicator lives; null where ranks are on processors.
  virtual const uint32_t* failed_flag() const { return nullptr; }
  // How long operations may make no progress.
  virtual absl::Duration timeout() const { return absl::InfiniteDuration(); }
};

// What a group needs in order to find its peers: a store of keys written once. Thread-safe.
class KeyStore {
 public:
  virtual ~KeyStore() = default;
  virtual absl::Status Put(absl::string_view key, absl::string_view value) = 0;
  // Waits until the key exists. DEADLINE_EXCEEDED, ABORTED (the generation is over).
  virtual absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) = 0;
};

class TokenBucket;
struct NcclParts;

// One group of one generation. `id` is the group's unique id, made by its lowest rank and carried
// by the coordinator: no two groups ever share one, so nothing of an older generation can be
// mistaken for this one's.
struct GroupOptions {
  std::string name;   // WORLD, NODE, LOCAL, CROSS
  std::string id;     // 128 random bits, hex
  uint32_t rank = 0;  // in the group
  uint32_t size = 1;
  std::vector<uint32_t> members;  // the job's ranks, by rank in the group
  KeyStore* store = nullptr;      // outlives the communicator
  std::string interface_address;  // numeric address that this rank is reached by; for gloo
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration timeout = absl::Seconds(30);  // without any progress
  // What a rank sends through gloo waits for it, as on a slower network: for measurements. Outlives
  // the communicator; null: no limit.
  TokenBucket* send_limit = nullptr;
  // What the nccl backend stands on, which outlives the call that makes the communicator; null
  // where ranks compute on CPUs.
  const NcclParts* nccl = nullptr;
  // The group's ranks are numbered node by node, so many on each: nccl's AllReduce goes by two
  // levels. 0: by one.
  uint32_t levels_of = 0;
  // Asked now and then, by another thread, while nccl connects: anything but OK ends that. The
  // generation is over, say.
  std::function<absl::Status()> cancelled;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_COMMUNICATOR_H_
