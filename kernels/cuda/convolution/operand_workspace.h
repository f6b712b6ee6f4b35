// How a layer's workspace is divided, and its operands cast to the type that products are of.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_OPERAND_WORKSPACE_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_OPERAND_WORKSPACE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cuda {

// What cuBLASLt requires of its workspace. A layer's own is aligned to fewer bytes.
constexpr size_t kRegionAlignment = 256;

// A part of a workspace.
struct WorkspaceRegion {
  size_t offset = 0;
  void* In(void* workspace) const {
    const auto address = reinterpret_cast<uintptr_t>(workspace);
    return static_cast<char*>(workspace) + (0 - address) % kRegionAlignment + offset;
  }
};

class WorkspacePlan {
 public:
  WorkspaceRegion Add(size_t bytes) {
    const WorkspaceRegion region{bytes_};
    bytes_ += (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
    return region;
  }
  // Room for `count` elements where those of `type` must be cast; else none.
  WorkspaceRegion AddCast(DataType type, DataType to, int64_t count) {
    return Add(type == to ? 0 : static_cast<size_t>(count) * SizeOf(to));
  }
  // Including what aligning the first region takes.
  size_t bytes() const { return bytes_ == 0 ? 0 : bytes_ + kRegionAlignment; }

 private:
  size_t bytes_ = 0;
};

// array [count], or its copy of type `to` in the region.
inline const void* AsType(const KernelTable& kernels, DataType type, const void* array,
                          int64_t count, DataType to, WorkspaceRegion region, void* workspace) {
  if (type == to) return array;
  void* const copy = region.In(workspace);
  kernels.cast(type, array, 1, to, copy, static_cast<size_t>(count));
  return copy;
}

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_OPERAND_WORKSPACE_H_
