#include "collectives/nccl/testing/fake_transfers.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "collectives/communicator.h"
#include "collectives/reduce.h"

namespace fake_nccl {
namespace {

using muster::collectives::DataType;
using muster::collectives::ReduceOp;
using muster::collectives::SizeOf;

DataType TypeOf(NcclDataType type) {
  switch (type) {
    case kNcclUint8:
      return DataType::kUint8;
    case kNcclInt32:
      return DataType::kInt32;
    case kNcclInt64:
      return DataType::kInt64;
    case kNcclFloat16:
      return DataType::kFloat16;
    case kNcclFloat32:
      return DataType::kFloat32;
    case kNcclFloat64:
      return DataType::kFloat64;
    case kNcclBfloat16:
      return DataType::kBfloat16;
    default:
      Misuse("data type " + std::to_string(type));
  }
}

ReduceOp OpOf(NcclRedOp op) {
  switch (op) {
    case kNcclSum:
      return ReduceOp::kSum;
    case kNcclMax:
      return ReduceOp::kMax;
    case kNcclMin:
      return ReduceOp::kMin;
    default:
      Misuse("reduction " + std::to_string(op));
  }
}

// Each rank puts a chunk into its slot; when all have done so, each reads the data it needs from
// all slots.
class Collective {
 public:
  Collective(NcclComm comm, Kind kind, const void* send, void* recv, size_t count,
             NcclDataType type, NcclRedOp op, int root)
      : comm_(comm),
        signature_{kind, type, op, root, count},
        send_(static_cast<const char*>(send)),
        recv_(static_cast<char*>(recv)),
        element_(SizeOf(TypeOf(type))),
        parts_(kind == kReduceScatter ? comm->size : 1),
        chunk_(comm->layout.slot_bytes / element_ / parts_) {}

  bool Step() {
    while (done_ < signature_.count) {
      if (!put_ && !Put()) return false;
      if (!Take()) return false;
    }
    done_ = 0;
    return true;
  }

 private:
  size_t length() const { return std::min(chunk_, signature_.count - done_); }

  // Returns whether all ranks have reached `least`.
  bool Await(std::atomic<uint64_t> RankState::*counter, uint64_t least) {
    std::vector<int> missing;
    for (int peer = 0; peer < comm_->size; ++peer) {
      if ((comm_->state_of(peer).*counter).load() < least) missing.push_back(peer);
    }
    if (missing.empty()) return true;
    comm_->CheckAlive(missing);
    return false;
  }

  bool Put() {
    if (!Await(&RankState::consumed, comm_->chunks)) return false;
    RankState& own = comm_->state_of(comm_->rank);
    if (done_ == 0) own.signature = signature_;
    if (signature_.kind != kBroadcast || signature_.root == comm_->rank) {
      for (size_t part = 0; part < parts_; ++part) {
        std::memcpy(comm_->slot(comm_->rank) + part * length() * element_,
                    send_ + (part * signature_.count + done_) * element_, length() * element_);
      }
    }
    own.arrived.store(comm_->chunks + 1);
    put_ = true;
    return true;
  }

  bool Take() {
    if (!Await(&RankState::arrived, comm_->chunks + 1)) return false;
    for (int peer = 0; done_ == 0 && peer < comm_->size; ++peer) {
      const Signature& other = comm_->state_of(peer).signature;
      if (std::memcmp(&other, &signature_, sizeof(other)) != 0) {
        Misuse("rank " + std::to_string(comm_->rank) + " calls with count " +
               std::to_string(signature_.count) + ", rank " + std::to_string(peer) + " with " +
               std::to_string(other.count) + ", or with different operations");
      }
    }
    const size_t bytes = length() * element_;
    switch (signature_.kind) {
      case kAllGather:
        for (int peer = 0; peer < comm_->size; ++peer) {
          std::memcpy(recv_ + (peer * signature_.count + done_) * element_, comm_->slot(peer),
                      bytes);
        }
        break;
      case kBroadcast:
        std::memcpy(recv_ + done_ * element_, comm_->slot(signature_.root), bytes);
        break;
      default:
        if (signature_.kind == kReduce && signature_.root != comm_->rank) break;
        Reduce(signature_.kind == kReduceScatter ? comm_->rank * bytes : 0);
    }
    comm_->state_of(comm_->rank).consumed.store(++comm_->chunks);
    done_ += length();
    put_ = false;
    return true;
  }

  void Reduce(size_t offset) {
    std::vector<const void*> inputs;
    for (int peer = 0; peer < comm_->size; ++peer) inputs.push_back(comm_->slot(peer) + offset);
    void* output = recv_ + done_ * element_;
    muster::collectives::ReduceArrays(inputs, {&output, 1}, length(), TypeOf(signature_.type),
                                      OpOf(signature_.op));
  }

  const NcclComm comm_;
  const Signature signature_;
  const char* const send_;
  char* const recv_;
  const size_t element_;
  const size_t parts_;
  const size_t chunk_;  // elements per segment
  size_t done_ = 0;
  bool put_ = false;
};

// Concurrent sends and receives; those of one peer and direction stay in order.
class Messages {
 public:
  Messages(NcclComm comm, std::vector<Message> messages)
      : comm_(comm), messages_(std::move(messages)) {
    if (comm->size > kPairRanks) Misuse("Send or Recv in a group of more than 16 ranks");
  }

  bool Step() {
    for (bool moved = true; moved;) {
      moved = false;
      std::set<std::pair<bool, int>> busy;
      for (Message& message : messages_) {
        if (message.finished || !busy.insert({message.send, message.peer}).second) continue;
        moved = (message.send ? Send(message) : Receive(message)) || moved;
      }
      if (busy.empty()) {
        for (Message& message : messages_) message.done = 0, message.finished = false;
        return true;
      }
      if (!moved) {
        std::vector<int> peers;
        for (const auto& entry : busy) peers.push_back(entry.second);
        comm_->CheckAlive(peers);
      }
    }
    return false;
  }

 private:
  bool Send(Message& message) {
    Pair& pair = comm_->pair(comm_->rank, message.peer);
    if (pair.sent.load() != pair.received.load()) return false;
    if (message.done == message.bytes) return message.finished = true;
    pair.total_bytes = message.bytes;
    pair.length = std::min(message.bytes - message.done, comm_->layout.pair_bytes);
    std::memcpy(reinterpret_cast<char*>(&pair + 1), message.data + message.done, pair.length);
    message.done += pair.length;
    pair.sent.fetch_add(1);
    return true;
  }

  bool Receive(Message& message) {
    Pair& pair = comm_->pair(message.peer, comm_->rank);
    if (pair.sent.load() == pair.received.load()) return false;
    if (pair.total_bytes != message.bytes) {
      Misuse("a send of " + std::to_string(pair.total_bytes) + " bytes meets a receive of " +
             std::to_string(message.bytes));
    }
    std::memcpy(message.data + message.done, reinterpret_cast<char*>(&pair + 1), pair.length);
    message.done += pair.length;
    message.finished = message.done == message.bytes;
    pair.received.fetch_add(1);
    return true;
  }

  const NcclComm comm_;
  std::vector<Message> messages_;
};

}  // namespace

size_t BytesOf(size_t count, NcclDataType type) { return count * SizeOf(TypeOf(type)); }

std::function<bool()> MakeCollective(NcclComm comm, Kind kind, const void* send, void* recv,
                                     size_t count, NcclDataType type, NcclRedOp op, int root) {
  auto collective = std::make_shared<Collective>(comm, kind, send, recv, count, type, op, root);
  return [collective] { return collective->Step(); };
}

std::function<bool()> MakeMessages(NcclComm comm, std::vector<Message> messages) {
  auto group = std::make_shared<Messages>(comm, std::move(messages));
  return [group] { return group->Step(); };
}

}  // namespace fake_nccl
