// An array of floats in host memory, aligned as kernels require.
#ifndef MUSTER_KERNELS_ALIGNED_FLOATS_H_
#define MUSTER_KERNELS_ALIGNED_FLOATS_H_

#include <cstddef>
#include <memory>
#include <new>

namespace muster::kernels {

inline constexpr std::align_val_t kFloatsAlignment{64};

struct AlignedDelete {
  void operator()(float* data) const { ::operator delete[](data, kFloatsAlignment); }
};
using AlignedFloats = std::unique_ptr<float[], AlignedDelete>;

// The floats are zero. Allocates with operator new, as standard containers do.
inline AlignedFloats MakeAlignedFloats(size_t count) {
  return AlignedFloats(new (kFloatsAlignment) float[count]());
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_ALIGNED_FLOATS_H_
