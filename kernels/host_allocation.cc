#include "kernels/host_allocation.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace muster::kernels {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
// At most an eighth of a larger array is wasted by rounding up.
constexpr size_t kSmallestInHugePages = 8 * kHugePage;

}  // namespace

absl::StatusOr<void*> AllocateHostArray(size_t bytes) {
  const size_t alignment = bytes >= kSmallestInHugePages ? kHugePage : kLine;
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* const data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) return absl::ResourceExhaustedError("out of memory");
  // Fails where the kernel has no huge pages, which costs only time.
  if (alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
  return data;
}

}  // namespace muster::kernels
