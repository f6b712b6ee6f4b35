// How a layer's workspace is divided, and its operands cast to the type that products are of.
#ifndef MUSTER_KERNELS_CUDA_OPERAND_WORKSPACE_H_
#define MUSTER_KERNELS_CUDA_OPERAND_WORKSPACE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cuda {

// A part of a workspace.
struct WorkspaceRegion {
  size_t offset = 0;
  void* In(void* workspace) const { return static_cast<char*>(workspace) + offset; }
};

class WorkspacePlan {
 public:
  WorkspaceRegion Add(size_t bytes) {
    constexpr size_t kAlignment = 256;
    const WorkspaceRegion region{bytes_};
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return region;
  }
  // Room for `count` elements where those of `type` must be cast; else none.
  WorkspaceRegion AddCast(DataType type, DataType to, int64_t count) {
    return Add(type == to ? 0 : static_cast<size_t>(count) * SizeOf(to));
  }
  size_t bytes() const { return bytes_; }

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

#endif  // MUSTER_KERNELS_CUDA_OPERAND_WORKSPACE_H_
