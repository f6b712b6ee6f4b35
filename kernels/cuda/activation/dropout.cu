#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// An item is up to four elements of a sample, those that one Philox counter decides.
template <typename Storage>
struct DropoutBody {
  DropoutMask mask;
  const RandomDraw* draw;
  float keep_scale;
  int64_t columns;
  int64_t groups;  // groups of four elements per sample
  bool whole;      // every group has four elements and is aligned for a vector load
  const Storage* x;
  Storage* y;

  template <int kCount>
  MUSTER_HOST_DEVICE void Keep(int64_t at, const PhiloxCounter& words, int first) const {
    Floats<kCount> values = Load<kCount>(x + at);
    for (int i = 0; i < kCount; ++i) {
      const bool drop = Uniform01(words[first + i]) < mask.probability;
      values[i] = drop ? 0.0f : values[i] * keep_scale;
    }
    Store<kCount>(y + at, values);
  }
  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const int64_t sample = item / groups;
    const int64_t group = item % groups;
    const PhiloxCounter words =
        Philox4x32(DropoutCounter(mask.layer, draw->first_sample + static_cast<uint64_t>(sample),
                                  static_cast<uint32_t>(group)),
                   draw->key);
    const int64_t at = sample * columns + 4 * group;
    if (whole) return Keep<4>(at, words, 0);
    for (int i = 0; i < 4; ++i) {
      if (4 * group + i < columns) Keep<1>(at + i, words, i);
    }
  }
};

}  // namespace

void Dropout(DataType type, const DropoutMask& mask, const RandomDraw* draw, int64_t samples,
             int64_t columns, const void* x, void* y) {
  StateWork(2 * ArrayBytes(type, samples * columns));
  const int64_t groups = CeilDiv(columns, 4);
  const bool whole = columns % 4 == 0 && Aligned({x, y});
  DispatchType(type, [&](auto element) {
    using Storage = decltype(element);
    ForEachItem(
        samples * groups,
        DropoutBody<Storage>{mask, draw, 1.0f / (1.0f - mask.probability), columns, groups, whole,
                             static_cast<const Storage*>(x), static_cast<Storage*>(y)});
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
