// Memory that NCCL moves without copying it first.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_MEMORY_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_MEMORY_H_

#include <cstddef>
#include <functional>
#include <list>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/nccl/nccl_library.h"
#include "kernels/device_stream.h"

namespace muster::collectives {

// How a library lets memory be known to it.
enum class NcclMemoryKind {
  kWindow,      // ncclCommWindowRegister, since 2.27: all ranks know all ranks' memory
  kRegistered,  // ncclCommRegister, since 2.19: transports need not copy it
  kPlain,       // the device's, unknown to NCCL
};

NcclMemoryKind NcclMemoryKindOf(const NcclLibrary& library);
// For the log.
absl::string_view Describe(NcclMemoryKind kind);

// Memory of the device, freed with the object: by any thread, when no kernel reads it any more.
class NcclBlock {
 public:
  // By a thread that has entered the device. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<NcclBlock>> Make(
      std::shared_ptr<const NcclLibrary> library, std::shared_ptr<kernels::DeviceStream> stream,
      size_t size_bytes);
  ~NcclBlock();
  NcclBlock(const NcclBlock&) = delete;
  NcclBlock& operator=(const NcclBlock&) = delete;

  void* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  NcclBlock(std::shared_ptr<const NcclLibrary> library,
            std::shared_ptr<kernels::DeviceStream> stream, size_t size_bytes);

  const std::shared_ptr<const NcclLibrary> library_;
  const std::shared_ptr<kernels::DeviceStream> stream_;
  const NcclMemoryKind kind_;
  const size_t size_bytes_;
  void* data_ = nullptr;
};

// The blocks that communicators know. For the thread that makes all calls on them.
class NcclRegistrations {
 public:
  // Waits until a call on a communicator, which gave back the code, has settled.
  using Settle = std::function<absl::Status(NcclResult, absl::string_view, NcclComm)>;

  NcclRegistrations(std::shared_ptr<const NcclLibrary> library, Settle settle);

  // Makes the block known to all of them, and keeps it alive so long. With windows it is collective
  // among each communicator's ranks. What NCCL and `settle` return.
  absl::Status Register(std::shared_ptr<NcclBlock> block, absl::Span<const NcclComm> comms);
  // Whether NCCL made anything of it.
  bool Knows(const NcclBlock& block) const;
  absl::Status Deregister(const NcclBlock& block);
  // Before communicators are finalized.
  absl::Status DeregisterAll();
  // Of communicators that were aborted: NCCL has let go of what they knew.
  void Forget() { entries_.clear(); }

 private:
  struct Entry {
    std::shared_ptr<NcclBlock> block;
    NcclComm comm;
    void* handle = nullptr;  // null: NCCL found nothing to be done
  };

  absl::Status Deregister(const Entry& entry);

  const std::shared_ptr<const NcclLibrary> library_;
  const Settle settle_;
  const NcclMemoryKind kind_;
  // NCCL may fill a handle in after nobody waits for it any more: each stays where it is.
  std::list<Entry> entries_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_MEMORY_H_
