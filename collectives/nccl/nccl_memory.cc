#include "collectives/nccl/nccl_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

// Granularity of window sizes; memory from ncclMemAlloc has this alignment.
constexpr size_t kWindowAlignment = 4096;

size_t RoundedUp(size_t bytes) {
  return (bytes + kWindowAlignment - 1) / kWindowAlignment * kWindowAlignment;
}

}  // namespace

NcclMemoryKind NcclMemoryKindOf(const NcclLibrary& library) {
  if (library.mem_alloc == nullptr || library.mem_free == nullptr) return NcclMemoryKind::kPlain;
  if (library.window_register != nullptr && library.window_deregister != nullptr) {
    return NcclMemoryKind::kWindow;
  }
  if (library.comm_register != nullptr && library.comm_deregister != nullptr) {
    return NcclMemoryKind::kRegistered;
  }
  return NcclMemoryKind::kPlain;
}

absl::string_view Describe(NcclMemoryKind kind) {
  switch (kind) {
    case NcclMemoryKind::kWindow:
      return "memory registered as windows (ncclCommWindowRegister)";
    case NcclMemoryKind::kRegistered:
      return "registered memory (ncclCommRegister)";
    case NcclMemoryKind::kPlain:
      break;
  }
  return "plain device memory (this version cannot register memory)";
}

NcclBlock::NcclBlock(std::shared_ptr<const NcclLibrary> library,
                     std::shared_ptr<kernels::DeviceStream> stream, size_t size_bytes)
    : library_(std::move(library)),
      stream_(std::move(stream)),
      kind_(NcclMemoryKindOf(*library_)),
      size_bytes_(size_bytes) {}

absl::StatusOr<std::shared_ptr<NcclBlock>> NcclBlock::Make(
    std::shared_ptr<const NcclLibrary> library, std::shared_ptr<kernels::DeviceStream> stream,
    size_t size_bytes) {
  std::shared_ptr<NcclBlock> block(
      new NcclBlock(std::move(library), std::move(stream), size_bytes));
  if (block->kind_ == NcclMemoryKind::kPlain) {
    ASSIGN_OR_RETURN(block->data_, block->stream_->Allocate(size_bytes));
    return block;
  }
  const NcclLibrary& nccl = *block->library_;
  const size_t bytes = RoundedUp(std::max<size_t>(size_bytes, 1));
  if (nccl.mem_alloc(&block->data_, bytes) == kNcclSuccess) return block;
  block->data_ = nullptr;
  return absl::ResourceExhaustedError(absl::StrCat("NCCL: cannot allocate ", size_bytes, " bytes"));
}

NcclBlock::~NcclBlock() {
  if (data_ == nullptr) return;
  if (kind_ == NcclMemoryKind::kPlain) {
    stream_->Free(data_);
  } else {
    library_->mem_free(data_);  // its result is ignored: nothing can be done about an error
  }
}

NcclRegistrations::NcclRegistrations(std::shared_ptr<const NcclLibrary> library, Settle settle)
    : library_(std::move(library)),
      settle_(std::move(settle)),
      kind_(NcclMemoryKindOf(*library_)) {}

absl::Status NcclRegistrations::Register(std::shared_ptr<NcclBlock> block,
                                         absl::Span<const NcclComm> comms) {
  if (kind_ == NcclMemoryKind::kPlain) return absl::OkStatus();
  const size_t bytes = RoundedUp(std::max<size_t>(block->size_bytes(), 1));
  for (NcclComm const comm : comms) {
    Entry& entry = entries_.emplace_back();
    entry.block = block;
    entry.comm = comm;
    if (kind_ == NcclMemoryKind::kWindow) {
      RETURN_IF_ERROR(settle_(library_->window_register(comm, block->data(), bytes, &entry.handle,
                                                        kNcclWindowSymmetric),
                              "ncclCommWindowRegister", comm));
    } else {
      RETURN_IF_ERROR(settle_(library_->comm_register(comm, block->data(), bytes, &entry.handle),
                              "ncclCommRegister", comm));
    }
  }
  return absl::OkStatus();
}

absl::Status NcclRegistrations::Deregister(const Entry& entry) {
  if (entry.handle == nullptr) return absl::OkStatus();
  return kind_ == NcclMemoryKind::kWindow
             ? settle_(library_->window_deregister(entry.comm, entry.handle),
                       "ncclCommWindowDeregister", entry.comm)
             : settle_(library_->comm_deregister(entry.comm, entry.handle), "ncclCommDeregister",
                       entry.comm);
}

bool NcclRegistrations::Knows(const NcclBlock& block) const {
  return std::any_of(entries_.begin(), entries_.end(), [&block](const Entry& entry) {
    return entry.block.get() == &block && entry.handle != nullptr;
  });
}

absl::Status NcclRegistrations::Deregister(const NcclBlock& block) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->block.get() != &block) {
      ++entry;
      continue;
    }
    RETURN_IF_ERROR(Deregister(*entry));
    entry = entries_.erase(entry);
  }
  return absl::OkStatus();
}

absl::Status NcclRegistrations::DeregisterAll() {
  while (!entries_.empty()) {
    RETURN_IF_ERROR(Deregister(entries_.back()));
    entries_.pop_back();
  }
  return absl::OkStatus();
}

}  // namespace muster::collectives
