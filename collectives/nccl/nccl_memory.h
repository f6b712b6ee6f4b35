// Device memory that NCCL can transfer without an intermediate copy.
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

// How an NCCL version registers memory.
enum class NcclMemoryKind {
  kWindow,      // ncclCommWindowRegister, since 2.27: all ranks can access all ranks' memory
  kRegistered,  // ncclCommRegister, since 2.19: zero-copy transports
  kPlain,       // unregistered device memory
};

NcclMemoryKind NcclMemoryKindOf(const NcclLibrary& library);
// Text for the log.
absl::string_view Describe(NcclMemoryKind kind);

// Device memory, freed with the object, by any thread, once no kernel accesses it.
class NcclBlock {
 public:
  // Called by a thread on which the device is current. RESOURCE_EXHAUSTED.
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

// Blocks that are registered with communicators. Used by the thread that makes all calls on them.
class NcclRegistrations {
 public:
  // Waits until a call on a communicator that returned the given code has completed.
  using Settle = std::function<absl::Status(NcclResult, absl::string_view, NcclComm)>;

  NcclRegistrations(std::shared_ptr<const NcclLibrary> library, Settle settle);

  // Registers the block with all `comms` and keeps it alive while registered. Window registration
  // is collective among each communicator's ranks. Errors of NCCL and `settle`.
  absl::Status Register(std::shared_ptr<NcclBlock> block, absl::Span<const NcclComm> comms);
  // Returns whether NCCL made use of the registration.
  bool Knows(const NcclBlock& block) const;
  absl::Status Deregister(const NcclBlock& block);
  // Called before the communicators are finalized.
  absl::Status DeregisterAll();
  // Drops all entries after the communicators were aborted, which deregisters their memory.
  void Forget() { entries_.clear(); }

 private:
  struct Entry {
    std::shared_ptr<NcclBlock> block;
    NcclComm comm;
    void* handle = nullptr;  // null: NCCL had nothing to register
  };

  absl::Status Deregister(const Entry& entry);

  const std::shared_ptr<const NcclLibrary> library_;
  const Settle settle_;
  const NcclMemoryKind kind_;
  // A list, for stable addresses: NCCL may write a handle after the wait for it has timed out.
  std::list<Entry> entries_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_MEMORY_H_
