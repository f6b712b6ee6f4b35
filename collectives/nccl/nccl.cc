#include "collectives/nccl/nccl.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/nccl/nccl_comm_thread.h"
#include "collectives/nccl/nccl_memory.h"
#include "collectives/operation_communicator.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

class NcclAllocation final : public Allocation {
 public:
  NcclAllocation(std::shared_ptr<NcclCommThread> owner, std::shared_ptr<NcclBlock> block)
      : owner_(std::move(owner)), block_(std::move(block)) {}
  ~NcclAllocation() override { owner_->Release(std::move(block_)); }
  NcclAllocation(const NcclAllocation&) = delete;
  NcclAllocation& operator=(const NcclAllocation&) = delete;

  void* data() override { return block_->data(); }
  size_t size_bytes() const override { return block_->size_bytes(); }

 private:
  const std::shared_ptr<NcclCommThread> owner_;
  std::shared_ptr<NcclBlock> block_;
};

class NcclCommunicator final : public OperationCommunicator {
 public:
  NcclCommunicator(const GroupOptions& options, std::shared_ptr<kernels::DeviceStream> stream)
      : OperationCommunicator(options.name, options.rank, options.members),
        timeout_(options.timeout),
        flag_stream_(options.nccl->flag_stream != nullptr ? options.nccl->flag_stream : stream),
        owner_(NcclCommThread::Start(options, {.library = options.nccl->library,
                                               .stream = std::move(stream),
                                               .flag_stream = flag_stream_,
                                               .max_ctas = options.nccl->max_ctas})) {}
  ~NcclCommunicator() override { owner_->Close(); }

  absl::string_view backend() const override { return "nccl"; }
  absl::Status AwaitConnected() { return owner_->AwaitConnected(); }

  absl::StatusOr<std::unique_ptr<Allocation>> Allocate(size_t size_bytes) override {
    ASSIGN_OR_RETURN(std::shared_ptr<NcclBlock> block, owner_->Allocate(size_bytes));
    return {std::make_unique<NcclAllocation>(owner_, std::move(block))};
  }

  void Abort(const absl::Status& reason) override {
    owner_->Fail(reason.ok() ? absl::AbortedError("aborted") : reason).IgnoreError();
  }
  absl::Status status() const override { return owner_->status(); }
  const uint32_t* failed_flag() const override {
    static_assert(sizeof(flag_stream_->flag()) == sizeof(uint32_t));
    return reinterpret_cast<const uint32_t*>(&flag_stream_->flag());
  }
  absl::Duration timeout() const override { return timeout_; }

 protected:
  std::shared_ptr<Work> Issue(const Operation& operation) override {
    // Fail the communicator: the peers would wait for a call that never comes.
    if (absl::Status status = Check(operation); !status.ok()) {
      return DoneWork(owner_->Fail(status));
    }
    return owner_->Issue(operation);
  }

 private:
  const absl::Duration timeout_;
  const std::shared_ptr<kernels::DeviceStream> flag_stream_;
  const std::shared_ptr<NcclCommThread> owner_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateNccl(const GroupOptions& options) {
  if (options.nccl == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.name, ": backend nccl connects GPUs, and this rank has none"));
  }
  if (options.levels_of > 0 && options.size % options.levels_of != 0) {
    return absl::InvalidArgumentError(absl::StrCat(options.name, ": ", options.size,
                                                   " ranks cannot be divided into nodes of ",
                                                   options.levels_of));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<kernels::DeviceStream> stream, options.nccl->make_stream());
  auto communicator = std::make_unique<NcclCommunicator>(options, std::move(stream));
  RETURN_IF_ERROR(communicator->AwaitConnected());
  return {std::move(communicator)};
}

}  // namespace muster::collectives
