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

// One piece of a range per block.
template <typename From, typename To>
struct CastRangesBody {
  struct Shared {};
  static constexpr int kPhases = 1;
  static constexpr int kWidth = 4;

  const CastRange* ranges;
  int64_t count;
  CastBody<From, To> cast;

  MUSTER_HOST_DEVICE void Run(int, int64_t block, int thread, Shared&) const {
    const int64_t piece = ranges[0].first_piece + block;
    // Binary search for the last range that begins at or before the piece.
    int64_t first = 0, after = count;
    while (after - first > 1) {
      const int64_t middle = first + (after - first) / 2;
      (ranges[middle].first_piece <= piece ? first : after) = middle;
    }
    const CastRange range = ranges[first];
    const int64_t begin = range.begin + (piece - range.first_piece) * kCastPiece;
    const int64_t end = Min(begin + kCastPiece, range.begin + range.count);
    int64_t at = begin + thread * kWidth;
    for (; at + kWidth <= end; at += kThreads * kWidth) cast.template Run<kWidth>(at);
    for (; at < end; ++at) cast.template Run<1>(at);
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
  int64_t vectors;  // number of vectors of kWidth elements, before the remaining elements
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

void CastRanges(DataType from, const void* x, DataType to, void* y, const CastRange* ranges,
                int64_t count, int64_t pieces) {
  // The last piece of each range counts as a whole one.
  StateWork(ArrayBytes(from, pieces * kCastPiece) + ArrayBytes(to, pieces * kCastPiece));
  DispatchType(from, [&](auto from_element) {
    DispatchType(to, [&](auto to_element) {
      using From = decltype(from_element);
      using To = decltype(to_element);
      ForEachBlock(pieces,
                   CastRangesBody<From, To>{
                       ranges, count, {static_cast<const From*>(x), 1, static_cast<To*>(y)}});
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
