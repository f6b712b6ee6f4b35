// Collectives for user programs: the ranks of a Muster command job, of torchrun, or of any
// processes that know rank 0's address, with the backends that Muster's own trainer uses.
//
//   ASSIGN_OR_RETURN(const auto group, muster::ProcessGroup::InitFromEnvironment());
//   std::vector<float> gradients = …;
//   RETURN_IF_ERROR(group->AllReduce(absl::MakeSpan(gradients)));
//
// All ranks of a group call the same operations in the same order with the same counts. Each
// operation has two forms: the plain one blocks; the one whose first argument is kAsync returns a
// Work at once, whose Wait returns the status, and the data must stay valid until then. After an
// error a group is unusable: every call returns that status.
//
// Errors of operations: UNAVAILABLE, a rank was lost and the message names it; DEADLINE_EXCEEDED,
// no progress within `timeout`; ABORTED, Abort was called; INVALID_ARGUMENT, spans of the wrong
// size.
#ifndef MUSTER_PROCESS_GROUP_PROCESS_GROUP_H_
#define MUSTER_PROCESS_GROUP_PROCESS_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/communicator.h"
#include "kernels/data_type.h"

namespace muster {

using collectives::ReduceOp;
using collectives::Work;

struct Async {};
inline constexpr Async kAsync;

// 16-bit element types, stored as their bits. Sums are computed in float32 and rounded once.
using kernels::Bfloat16;
using kernels::Float16;

struct ProcessGroupOptions {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::string address;  // tcp://HOST:PORT, where rank 0 listens and the others find it
  // auto: shared memory on one host, gloo between hosts of one rank each, hierarchical otherwise
  // (gloo if ranks are not numbered host by host). Or shm, gloo, hierarchical, mpi.
  std::string backend = "auto";
  absl::Duration connect_timeout = absl::Seconds(60);  // limit for all ranks to join
  absl::Duration timeout = absl::Seconds(60);          // limit without any progress
  // Identifies one start of the program; equal for all its ranks, so that a rank of an earlier
  // start is not mistaken for one of this start.
  std::string run;
  // Ranks with equal hosts share memory; empty: detected.
  std::string host;
  // The numeric address at which others reach this rank; empty: the local address used to reach
  // `address`.
  std::string interface_address;
};

// A group of ranks with typed collectives. T: float, double, int32_t, int64_t, uint8_t, Bfloat16,
// Float16. `root` and `peer` are ranks in the group. Thread-safe: calls are ordered by arrival.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  uint32_t rank() const { return communicator().rank(); }
  uint32_t size() const { return communicator().size(); }
  absl::string_view backend() const { return communicator().backend(); }

  // data[i] = op over ranks of data[i]; bit-identical on all ranks.
  template <typename T>
  std::shared_ptr<Work> AllReduce(Async, absl::Span<T> data, ReduceOp op = ReduceOp::kSum) {
    return communicator().AllReduce(data.data(), data.data(), data.size(), TypeOf<T>(), op);
  }
  template <typename T>
  absl::Status AllReduce(absl::Span<T> data, ReduceOp op = ReduceOp::kSum) {
    return AllReduce(kAsync, data, op)->Wait();
  }

  // `send` is size() times as long as `recv`; rank r receives the reduction of segment r.
  template <typename T>
  std::shared_ptr<Work> ReduceScatter(Async, absl::Span<const T> send, absl::Span<T> recv,
                                      ReduceOp op = ReduceOp::kSum) {
    if (send.size() != recv.size() * size())
      return WrongSize("ReduceScatter", send.size(), recv.size());
    return communicator().ReduceScatter(send.data(), recv.data(), recv.size(), TypeOf<T>(), op);
  }
  template <typename T>
  absl::Status ReduceScatter(absl::Span<const T> send, absl::Span<T> recv,
                             ReduceOp op = ReduceOp::kSum) {
    return ReduceScatter(kAsync, send, recv, op)->Wait();
  }

  // `recv` is size() times as long as `send`, in rank order.
  template <typename T>
  std::shared_ptr<Work> AllGather(Async, absl::Span<const T> send, absl::Span<T> recv) {
    if (recv.size() != send.size() * size())
      return WrongSize("AllGather", send.size(), recv.size());
    return communicator().AllGather(send.data(), recv.data(), send.size(), TypeOf<T>());
  }
  template <typename T>
  absl::Status AllGather(absl::Span<const T> send, absl::Span<T> recv) {
    return AllGather(kAsync, send, recv)->Wait();
  }

  template <typename T>
  std::shared_ptr<Work> Broadcast(Async, absl::Span<T> data, uint32_t root) {
    return communicator().Broadcast(data.data(), data.size(), TypeOf<T>(), root);
  }
  template <typename T>
  absl::Status Broadcast(absl::Span<T> data, uint32_t root) {
    return Broadcast(kAsync, data, root)->Wait();
  }

  // `recv` is as long as `send` on the root, and not used elsewhere.
  template <typename T>
  std::shared_ptr<Work> Reduce(Async, absl::Span<const T> send, absl::Span<T> recv, uint32_t root,
                               ReduceOp op = ReduceOp::kSum) {
    if (rank() == root && recv.size() != send.size()) {
      return WrongSize("Reduce", send.size(), recv.size());
    }
    return communicator().Reduce(send.data(), recv.data(), send.size(), TypeOf<T>(), op, root);
  }
  template <typename T>
  absl::Status Reduce(absl::Span<const T> send, absl::Span<T> recv, uint32_t root,
                      ReduceOp op = ReduceOp::kSum) {
    return Reduce(kAsync, send, recv, root, op)->Wait();
  }

  // `recv` is size() times as long as `send` on the root, and not used elsewhere.
  template <typename T>
  std::shared_ptr<Work> Gather(Async, absl::Span<const T> send, absl::Span<T> recv, uint32_t root) {
    if (rank() == root && recv.size() != send.size() * size()) {
      return WrongSize("Gather", send.size(), recv.size());
    }
    return communicator().Gather(send.data(), recv.data(), send.size(), TypeOf<T>(), root);
  }
  template <typename T>
  absl::Status Gather(absl::Span<const T> send, absl::Span<T> recv, uint32_t root) {
    return Gather(kAsync, send, recv, root)->Wait();
  }

  // `send` is size() times as long as `recv` on the root, and not used elsewhere.
  template <typename T>
  std::shared_ptr<Work> Scatter(Async, absl::Span<const T> send, absl::Span<T> recv,
                                uint32_t root) {
    if (rank() == root && send.size() != recv.size() * size()) {
      return WrongSize("Scatter", send.size(), recv.size());
    }
    return communicator().Scatter(send.data(), recv.data(), recv.size(), TypeOf<T>(), root);
  }
  template <typename T>
  absl::Status Scatter(absl::Span<const T> send, absl::Span<T> recv, uint32_t root) {
    return Scatter(kAsync, send, recv, root)->Wait();
  }

  // Both have the same length, a multiple of size(); segment i of `send` goes to rank i.
  template <typename T>
  std::shared_ptr<Work> AllToAll(Async, absl::Span<const T> send, absl::Span<T> recv) {
    if (send.size() != recv.size() || send.size() % size() != 0) {
      return WrongSize("AllToAll", send.size(), recv.size());
    }
    return communicator().AllToAll(send.data(), recv.data(), send.size() / size(), TypeOf<T>());
  }
  template <typename T>
  absl::Status AllToAll(absl::Span<const T> send, absl::Span<T> recv) {
    return AllToAll(kAsync, send, recv)->Wait();
  }

  template <typename T>
  std::shared_ptr<Work> Send(Async, absl::Span<const T> data, uint32_t peer) {
    return communicator().Send(data.data(), data.size(), TypeOf<T>(), peer);
  }
  template <typename T>
  absl::Status Send(absl::Span<const T> data, uint32_t peer) {
    return Send(kAsync, data, peer)->Wait();
  }
  template <typename T>
  std::shared_ptr<Work> Recv(Async, absl::Span<T> data, uint32_t peer) {
    return communicator().Recv(data.data(), data.size(), TypeOf<T>(), peer);
  }
  template <typename T>
  absl::Status Recv(absl::Span<T> data, uint32_t peer) {
    return Recv(kAsync, data, peer)->Wait();
  }

  std::shared_ptr<Work> Barrier(Async) { return communicator().Barrier(); }
  absl::Status Barrier() { return Barrier(kAsync)->Wait(); }

  // Ends all operations on this rank within two seconds. Never blocks. Any thread.
  void Abort(const absl::Status& reason) { communicator().Abort(reason); }
  // OK, or the status that every call returns from now on.
  absl::Status status() const { return communicator().status(); }

  // The underlying communicator.
  virtual collectives::Communicator& communicator() const = 0;

 protected:
  Group() = default;

 private:
  template <typename T>
  static constexpr kernels::DataType TypeOf() {
    using kernels::DataType;
    if constexpr (std::is_same_v<T, float>) return DataType::kFloat32;
    if constexpr (std::is_same_v<T, double>) return DataType::kFloat64;
    if constexpr (std::is_same_v<T, Bfloat16>) return DataType::kBfloat16;
    if constexpr (std::is_same_v<T, Float16>) return DataType::kFloat16;
    if constexpr (std::is_same_v<T, int32_t>) return DataType::kInt32;
    if constexpr (std::is_same_v<T, int64_t>) return DataType::kInt64;
    if constexpr (std::is_same_v<T, uint8_t>) return DataType::kUint8;
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> ||
                      std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16> ||
                      std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t> ||
                      std::is_same_v<T, uint8_t>,
                  "unsupported element type");
  }
  // Aborts the group, because the other ranks wait for a call that never comes.
  std::shared_ptr<Work> WrongSize(absl::string_view what, size_t send, size_t recv);
};

// The group of all ranks. Rank 0's process hosts the rendezvous, so it must leave last; after it
// has left, no new groups can be created. The death of any rank's process ends the operations of
// all ranks, immediately if its machine is still up.
class ProcessGroup : public Group {
 public:
  // Blocks until all ranks have joined. INVALID_ARGUMENT; DEADLINE_EXCEEDED names the ranks that
  // have not joined; UNAVAILABLE names a rank that joined and was lost; ALREADY_EXISTS: rank 0's
  // port is in use, or two processes have the same rank; FAILED_PRECONDITION: ranks of different
  // runs, or an address that other hosts cannot reach.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Init(const ProcessGroupOptions& options);
  // Uses RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as set by a Muster command job or torchrun;
  // the remaining options are taken from `options`.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> InitFromEnvironment(
      const ProcessGroupOptions& options = {});

  // This rank's position among the ranks of its host, and their number.
  virtual uint32_t local_rank() const = 0;
  virtual uint32_t local_size() const = 0;

  // Creates a group of some of the ranks, numbered in this order; it must be destroyed before this
  // object. Blocks until all of them have called, with the same ranks and `name`, which must be
  // unique. Errors as of Init; INVALID_ARGUMENT also if this rank is not among them.
  virtual absl::StatusOr<std::unique_ptr<Group>> NewGroup(const std::string& name,
                                                          std::vector<uint32_t> ranks) = 0;
};

}  // namespace muster

#endif  // MUSTER_PROCESS_GROUP_PROCESS_GROUP_H_
