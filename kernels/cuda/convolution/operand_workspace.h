// Regions of a layer's workspace, and casts of operands to the compute type.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_OPERAND_WORKSPACE_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_OPERAND_WORKSPACE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cuda {

// The alignment that cuBLASLt requires of its workspace. A layer's workspace is aligned to 64 bytes
// only.
constexpr size_t kRegionAlignment = 256;

// A region of a workspace; offset in bytes from its first address aligned to kRegionAlignment.
struct WorkspaceRegion {
  size_t offset = 0;
  void* In(void* workspace) const {
    const auto address = reinterpret_cast<uintptr_t>(workspace);
    return static_cast<char*>(workspace) + (0 - address) % kRegionAlignment + offset;
  }
};

// Assigns regions of a workspace.
class WorkspacePlan {
 public:
  WorkspaceRegion Add(size_t bytes) {
    const WorkspaceRegion region{bytes_};
    bytes_ += (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
    return region;
  }
  // A region for `count` elements of type `to`; empty if `type` needs no cast.
  WorkspaceRegion AddCast(DataType type, DataType to, int64_t count) {
    return Add(type == to ? 0 : static_cast<size_t>(count) * SizeOf(to));
  }
  // Bytes of the workspace, including padding to align the first region.
  size_t bytes() const { return bytes_ == 0 ? 0 : bytes_ + kRegionAlignment; }

 private:
  size_t bytes_ = 0;
};

// Returns array [count] if it is of type `to`; otherwise queues a cast into the region and returns
// that.
inline const void* AsType(const KernelTable& kernels, DataType type, const void* array,
                          int64_t count, DataType to, WorkspaceRegion region, void* workspace) {
  if (type == to) return array;
  void* const copy = region.In(workspace);
  kernels.cast(type, array, 1, to, copy, static_cast<size_t>(count));
  return copy;
}

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_OPERAND_WORKSPACE_H_
