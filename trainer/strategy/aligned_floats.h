// An array of floats, zeroed, aligned as kernels and plans want it.
#ifndef MUSTER_TRAINER_STRATEGY_ALIGNED_FLOATS_H_
#define MUSTER_TRAINER_STRATEGY_ALIGNED_FLOATS_H_

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace muster::train {

struct FreeDeleter {
  void operator()(float* p) const { std::free(p); }
};
using AlignedFloats = std::unique_ptr<float[], FreeDeleter>;

inline AlignedFloats MakeAlignedFloats(size_t count) {
  constexpr size_t kAlignment = 64;
  const size_t bytes = (count * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  auto* data = static_cast<float*>(std::aligned_alloc(kAlignment, std::max(bytes, kAlignment)));
  if (data == nullptr) throw std::bad_alloc();
  std::fill_n(data, count, 0.0f);
  return AlignedFloats(data);
}

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ALIGNED_FLOATS_H_
