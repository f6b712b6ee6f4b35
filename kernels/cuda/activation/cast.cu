#include "kernels/cuda/launch/block_reduce.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

template <typename From, typename To>
struct CastBody {
  const From* x;
  float scale;
  To* y;
  template <int kCount>
  MUSTER_HOST_DEVICE void Run(int64_t at) const {
    Floats<kCount> values = Load<kCount>(x + at);
    for (int i = 0; i < kCount; ++i) values[i] = values[i] * scale;
    Store<kCount>(y + at, values);
  }
};

// Non-zero if an element is infinite or NaN.
struct Flag {
  uint32_t value;
  MUSTER_HOST_DEVICE static Flag Identity() { return {0}; }
  MUSTER_HOST_DEVICE void Add(const Flag& other) { value |= other.value; }
};

template <typename Storage>
struct NotFiniteSource {
  const Storage* x;
  int64_t count;
  int64_t vectors;  // of kWidth elements, before the remaining elements
  static constexpr int kWidth = 16 / sizeof(Storage);

  template <int kCount>
  MUSTER_HOST_DEVICE Flag At(int64_t at) const {
    const Floats<kCount> values = Load<kCount>(x + at);
    Flag result = Flag::Identity();
    // x - x is NaN if x is infinite or NaN.
    for (int i = 0; i < kCount; ++i) result.value |= values[i] - values[i] == 0 ? 0 : 1;
    return result;
  }
  MUSTER_HOST_DEVICE Flag operator()(int64_t i) const {
    return i < vectors ? At<kWidth>(i * kWidth) : At<1>(vectors * kWidth + (i - vectors));
  }
  int64_t items() const { return vectors + (count - vectors * kWidth); }
};

struct FiniteSink {
  bool* finite;
  MUSTER_HOST_DEVICE void operator()(int64_t, const Flag& bad) const { *finite = bad.value == 0; }
};

}  // namespace

void Cast(DataType from, const void* x, float scale, DataType to, void* y, size_t count) {
  StateWork(ArrayBytes(from, static_cast<int64_t>(count)) +
            ArrayBytes(to, static_cast<int64_t>(count)));
  DispatchType(from, [&](auto from_element) {
    DispatchType(to, [&](auto to_element) {
      using From = decltype(from_element);
      using To = decltype(to_element);
      constexpr int kWidth = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
      ForEachElement<kWidth>(
          static_cast<int64_t>(count), Aligned({x, y}),
          CastBody<From, To>{static_cast<const From*>(x), scale, static_cast<To*>(y)});
    });
  });
}

void AllFinite(DataType type, const void* x, size_t count, bool* finite) {
  StateWork(ArrayBytes(type, static_cast<int64_t>(count)));
  DispatchType(type, [&](auto element) {
    using Storage = decltype(element);
    using Source = NotFiniteSource<Storage>;
    const auto elements = static_cast<int64_t>(count);
    const Source source{static_cast<const Storage*>(x), elements,
                        Aligned({x}) ? elements / Source::kWidth : 0};
    ReduceAll<Flag>(source.items(), source, FiniteSink{finite});
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
