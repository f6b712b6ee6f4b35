// A Communicator call as a value that backends execute.
#ifndef MUSTER_COLLECTIVES_OPERATION_H_
#define MUSTER_COLLECTIVES_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "collectives/communicator.h"

namespace muster::collectives {

struct Operation {
  enum class Kind : uint8_t {
    kAllReduce,
    kReduceScatter,
    kAllGather,
    kBroadcast,
    kReduce,
    kGather,
    kScatter,
    kAllToAll,
    kSend,
    kReceive,
    kBarrier,
  };

  Kind kind = Kind::kBarrier;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;  // as in the call: per rank where buffers have one segment per rank
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  uint32_t root = 0;  // or the peer of a Send or Receive

  size_t bytes() const { return count * SizeOf(type); }
  bool point_to_point() const { return kind == Kind::kSend || kind == Kind::kReceive; }
};

// Identifies a call: kind, type, operator, root and count. Equal on all ranks of a correct program.
struct OperationSignature {
  uint64_t what = 0;
  uint64_t count = 0;

  friend bool operator==(const OperationSignature& a, const OperationSignature& b) {
    return a.what == b.what && a.count == b.count;
  }
};

OperationSignature SignatureOf(const Operation& operation);

// E.g. "AllReduce of 7 float32 (sum)".
std::string Describe(const OperationSignature& signature);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_OPERATION_H_
