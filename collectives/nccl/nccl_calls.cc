#include "collectives/nccl/nccl_calls.h"

#include <cstddef>

namespace muster::collectives {
namespace {

NcclDataType TypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return kNcclFloat32;
    case DataType::kFloat64:
      return kNcclFloat64;
    case DataType::kBfloat16:
      return kNcclBfloat16;
    case DataType::kFloat16:
      return kNcclFloat16;
    case DataType::kInt32:
      return kNcclInt32;
    case DataType::kInt64:
      return kNcclInt64;
    case DataType::kUint8:
      return kNcclUint8;
  }
  return kNcclUint8;
}

NcclRedOp OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return kNcclSum;
    case ReduceOp::kMin:
      return kNcclMin;
    case ReduceOp::kMax:
      return kNcclMax;
  }
  return kNcclSum;
}

// Operations for which NCCL has no function, or not in all supported versions; they are composed of
// sends and receives.
bool IsGroup(Operation::Kind kind) {
  return kind == Operation::Kind::kGather || kind == Operation::Kind::kScatter ||
         kind == Operation::Kind::kAllToAll || kind == Operation::Kind::kSend ||
         kind == Operation::Kind::kReceive;
}

NcclResult CallCollective(const NcclLibrary& library, const NcclGroup& group, const Operation& o) {
  const NcclDataType type = TypeOf(o.type);
  const NcclRedOp op = OpOf(o.op);
  const int root = static_cast<int>(o.root);
  if (o.kind == Operation::Kind::kBarrier) {
    return library.all_reduce(group.barrier_word, group.barrier_word, 1, kNcclInt32, kNcclMax,
                              group.comm, group.stream);
  }
  if (o.count == 0) return kNcclSuccess;
  switch (o.kind) {
    case Operation::Kind::kAllReduce:
      return library.all_reduce(o.send, o.recv, o.count, type, op, group.comm, group.stream);
    case Operation::Kind::kReduceScatter:
      return library.reduce_scatter(o.send, o.recv, o.count, type, op, group.comm, group.stream);
    case Operation::Kind::kAllGather:
      return library.all_gather(o.send, o.recv, o.count, type, group.comm, group.stream);
    case Operation::Kind::kBroadcast:
      return library.broadcast(o.send, o.recv, o.count, type, root, group.comm, group.stream);
    case Operation::Kind::kReduce:
      return library.reduce(o.send, o.recv, o.count, type, op, root, group.comm, group.stream);
    default:
      return kNcclInvalidArgument;
  }
}

// Sends and receives between ncclGroupStart and ncclGroupEnd. A rank may send to itself inside a
// group.
class Messages {
 public:
  Messages(const NcclLibrary& library, const NcclGroup& group) : library_(library), group_(group) {}

  void Add(const Operation& o) {
    if (o.count == 0) return;
    const bool is_root = o.root == group_.rank;
    switch (o.kind) {
      case Operation::Kind::kSend:
        Send(o, o.send, o.root);
        break;
      case Operation::Kind::kReceive:
        Receive(o, o.recv, o.root);
        break;
      case Operation::Kind::kGather:
        Send(o, o.send, o.root);
        for (uint32_t i = 0; is_root && i < group_.size; ++i) Receive(o, Part(o, o.recv, i), i);
        break;
      case Operation::Kind::kScatter:
        Receive(o, o.recv, o.root);
        for (uint32_t i = 0; is_root && i < group_.size; ++i) Send(o, Part(o, o.send, i), i);
        break;
      case Operation::Kind::kAllToAll:
        for (uint32_t i = 0; i < group_.size; ++i) {
          Send(o, Part(o, o.send, i), i);
          Receive(o, Part(o, o.recv, i), i);
        }
        break;
      default:
        Keep(kNcclInvalidArgument);
    }
  }

  NcclResult first_error() const { return first_error_; }

 private:
  static const void* Part(const Operation& o, const void* data, uint32_t rank) {
    return static_cast<const std::byte*>(data) + rank * o.bytes();
  }
  void Send(const Operation& o, const void* data, uint32_t peer) {
    Keep(library_.send(data, o.count, TypeOf(o.type), static_cast<int>(peer), group_.comm,
                       group_.stream));
  }
  void Receive(const Operation& o, const void* data, uint32_t peer) {
    Keep(library_.recv(const_cast<void*>(data), o.count, TypeOf(o.type), static_cast<int>(peer),
                       group_.comm, group_.stream));
  }
  void Keep(NcclResult result) {
    if (first_error_ == kNcclSuccess && result != kNcclInProgress) first_error_ = result;
  }

  const NcclLibrary& library_;
  const NcclGroup& group_;
  NcclResult first_error_ = kNcclSuccess;
};

}  // namespace

NcclResult CallNccl(const NcclLibrary& library, const NcclGroup& group,
                    absl::Span<const Operation> operations) {
  if (!IsGroup(operations.front().kind)) return CallCollective(library, group, operations.front());
  const NcclResult started = library.group_start();
  if (started != kNcclSuccess) return started;
  Messages messages(library, group);
  for (const Operation& operation : operations) messages.Add(operation);
  const NcclResult ended = library.group_end();
  return messages.first_error() == kNcclSuccess ? ended : messages.first_error();
}

}  // namespace muster::collectives
