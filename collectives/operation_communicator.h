// Base of all backends: checks arguments and converts calls to Operations.
#ifndef MUSTER_COLLECTIVES_OPERATION_COMMUNICATOR_H_
#define MUSTER_COLLECTIVES_OPERATION_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collectives/communicator.h"
#include "collectives/operation.h"

namespace muster::collectives {

class OperationCommunicator : public Communicator {
 public:
  uint32_t rank() const final { return rank_; }
  uint32_t size() const final { return static_cast<uint32_t>(members_.size()); }

  std::shared_ptr<Work> AllReduce(const void* send, void* recv, size_t count, DataType type,
                                  ReduceOp op) final;
  std::shared_ptr<Work> ReduceScatter(const void* send, void* recv, size_t recv_count,
                                      DataType type, ReduceOp op) final;
  std::shared_ptr<Work> AllGather(const void* send, void* recv, size_t send_count,
                                  DataType type) final;
  std::shared_ptr<Work> Broadcast(void* data, size_t count, DataType type, uint32_t root) final;
  std::shared_ptr<Work> Reduce(const void* send, void* recv, size_t count, DataType type,
                               ReduceOp op, uint32_t root) final;
  std::shared_ptr<Work> Gather(const void* send, void* recv, size_t send_count, DataType type,
                               uint32_t root) final;
  std::shared_ptr<Work> Scatter(const void* send, void* recv, size_t recv_count, DataType type,
                                uint32_t root) final;
  std::shared_ptr<Work> AllToAll(const void* send, void* recv, size_t count, DataType type) final;
  std::shared_ptr<Work> Send(const void* data, size_t count, DataType type, uint32_t peer) final;
  std::shared_ptr<Work> Recv(void* data, size_t count, DataType type, uint32_t peer) final;
  std::shared_ptr<Work> Barrier() final;

 protected:
  // `members` as in GroupOptions.
  OperationCommunicator(std::string name, uint32_t rank, std::vector<uint32_t> members);

  virtual std::shared_ptr<Work> Issue(const Operation& operation) = 0;

  // INVALID_ARGUMENT if a group of this size cannot perform `operation`.
  absl::Status Check(const Operation& operation) const;

  const std::string& name() const { return name_; }
  uint32_t job_rank(uint32_t group_rank) const { return members_[group_rank]; }

 private:
  const std::string name_;
  const uint32_t rank_;
  const std::vector<uint32_t> members_;
};

// Returns a completed Work.
std::shared_ptr<Work> DoneWork(absl::Status status);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_OPERATION_COMMUNICATOR_H_
