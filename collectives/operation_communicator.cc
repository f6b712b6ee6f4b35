#include "collectives/operation_communicator.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace muster::collectives {
namespace {

class FinishedWork final : public Work {
 public:
  explicit FinishedWork(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }
  bool Done() const override { return true; }

 private:
  const absl::Status status_;
};

Operation MakeOperation(Operation::Kind kind, const void* send, void* recv, size_t count,
                        DataType type, ReduceOp op = ReduceOp::kSum, uint32_t root = 0) {
  Operation operation;
  operation.kind = kind;
  operation.send = send;
  operation.recv = recv;
  operation.count = count;
  operation.type = type;
  operation.op = op;
  operation.root = root;
  return operation;
}

}  // namespace

std::shared_ptr<Work> DoneWork(absl::Status status) {
  return std::make_shared<FinishedWork>(std::move(status));
}

OperationCommunicator::OperationCommunicator(std::string name, uint32_t rank,
                                             std::vector<uint32_t> members)
    : name_(std::move(name)), rank_(rank), members_(std::move(members)) {}

std::shared_ptr<Work> OperationCommunicator::AllReduce(const void* send, void* recv, size_t count,
                                                       DataType type, ReduceOp op) {
  return Issue(MakeOperation(Operation::Kind::kAllReduce, send, recv, count, type, op));
}

std::shared_ptr<Work> OperationCommunicator::ReduceScatter(const void* send, void* recv,
                                                           size_t recv_count, DataType type,
                                                           ReduceOp op) {
  return Issue(MakeOperation(Operation::Kind::kReduceScatter, send, recv, recv_count, type, op));
}

std::shared_ptr<Work> OperationCommunicator::AllGather(const void* send, void* recv,
                                                       size_t send_count, DataType type) {
  return Issue(MakeOperation(Operation::Kind::kAllGather, send, recv, send_count, type));
}

std::shared_ptr<Work> OperationCommunicator::Broadcast(void* data, size_t count, DataType type,
                                                       uint32_t root) {
  return Issue(
      MakeOperation(Operation::Kind::kBroadcast, data, data, count, type, ReduceOp::kSum, root));
}

std::shared_ptr<Work> OperationCommunicator::Reduce(const void* send, void* recv, size_t count,
                                                    DataType type, ReduceOp op, uint32_t root) {
  return Issue(MakeOperation(Operation::Kind::kReduce, send, recv, count, type, op, root));
}

std::shared_ptr<Work> OperationCommunicator::Gather(const void* send, void* recv, size_t send_count,
                                                    DataType type, uint32_t root) {
  return Issue(
      MakeOperation(Operation::Kind::kGather, send, recv, send_count, type, ReduceOp::kSum, root));
}

std::shared_ptr<Work> OperationCommunicator::Scatter(const void* send, void* recv,
                                                     size_t recv_count, DataType type,
                                                     uint32_t root) {
  return Issue(
      MakeOperation(Operation::Kind::kScatter, send, recv, recv_count, type, ReduceOp::kSum, root));
}

std::shared_ptr<Work> OperationCommunicator::AllToAll(const void* send, void* recv, size_t count,
                                                      DataType type) {
  return Issue(MakeOperation(Operation::Kind::kAllToAll, send, recv, count, type));
}

std::shared_ptr<Work> OperationCommunicator::Send(const void* data, size_t count, DataType type,
                                                  uint32_t peer) {
  return Issue(
      MakeOperation(Operation::Kind::kSend, data, nullptr, count, type, ReduceOp::kSum, peer));
}

std::shared_ptr<Work> OperationCommunicator::Recv(void* data, size_t count, DataType type,
                                                  uint32_t peer) {
  return Issue(
      MakeOperation(Operation::Kind::kReceive, nullptr, data, count, type, ReduceOp::kSum, peer));
}

std::shared_ptr<Work> OperationCommunicator::Barrier() { return Issue(Operation()); }

absl::Status OperationCommunicator::Check(const Operation& operation) const {
  if (operation.root >= size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ": rank ", operation.root, " is out of range for a group of ", size()));
  }
  if (operation.point_to_point() && operation.root == rank_) {
    return absl::InvalidArgumentError("a rank cannot send to itself");
  }
  if (operation.count > std::numeric_limits<size_t>::max() / 16 / size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("element count ", operation.count, " is too large"));
  }
  return absl::OkStatus();
}

}  // namespace muster::collectives
