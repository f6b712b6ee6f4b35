// How blocks share an NHWC array, [pixels, channels], when each channel has parameters or sums of
// its own: a thread keeps to one vector of channels, and walks over pixels.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_CHANNEL_TILING_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_CHANNEL_TILING_H_

#include <cstdint>

#include "kernels/cuda/launch/launch.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// A block has `lanes` vectors of channels side by side, as neighbours in memory, times `rows`
// pixels; `groups` blocks cover all channels, and `slices` times as many all pixels. That once per
// share: of several jobs over the same pixels.
struct Columns {
  int64_t pixels;
  int64_t vectors;  // of a pixel
  int64_t shares;
  int64_t lanes;  // a power of two
  int64_t rows;
  int64_t groups;
  int64_t slices;

  Columns(int64_t pixels, int64_t vectors, int64_t shares = 1)
      : pixels(pixels), vectors(vectors), shares(shares), lanes(1) {
    constexpr int64_t kMostLanes = 64;
    constexpr int64_t kPixels = 4;  // at least, of a thread, where there are so many
    while (lanes < vectors && lanes < kMostLanes) lanes *= 2;
    rows = kThreads / lanes;
    groups = Quotient(vectors, lanes);
    slices = Smaller(Quotient(pixels, rows * kPixels), kReducingBlocks / (groups * shares));
    slices = Larger(slices, 1);
  }

  int64_t blocks() const { return slices * shares * groups; }
  MUSTER_HOST_DEVICE int64_t Share(int64_t block) const { return block / groups % shares; }
  MUSTER_HOST_DEVICE int64_t Slice(int64_t block) const { return block / groups / shares; }
  MUSTER_HOST_DEVICE int64_t FirstVector(int64_t block) const { return block % groups * lanes; }

  // The thread's vector of channels; none if it is not below `vectors`.
  MUSTER_HOST_DEVICE int64_t Vector(int64_t block, int thread) const {
    return FirstVector(block) + thread % lanes;
  }
  // Calls visit(pixel) for each pixel of the thread.
  template <typename Visit>
  MUSTER_HOST_DEVICE void ForEachPixel(int64_t block, int thread, const Visit& visit) const {
    const int64_t stride = slices * rows;
    for (int64_t p = Slice(block) * rows + thread / lanes; p < pixels; p += stride) visit(p);
  }
};

// Calls begin(channel) in each thread that has channels, of which kWidth follow, and what that
// gives for each of the thread's pixels.
template <typename Begin, int kWidth>
struct ColumnsBody {
  struct Shared {};
  static constexpr int kPhases = 1;

  Columns columns;
  Begin begin;
  MUSTER_HOST_DEVICE void Run(int, int64_t block, int thread, Shared&) const {
    const int64_t vector = columns.Vector(block, thread);
    if (vector >= columns.vectors) return;
    const auto visit = begin(vector * kWidth);
    columns.ForEachPixel(block, thread, visit);
  }
};

template <int kWidth, typename Begin>
void ForEachPixel(int64_t pixels, int64_t channels, const Begin& begin) {
  const Columns columns(pixels, channels / kWidth);
  ForEachBlock(columns.blocks(), ColumnsBody<Begin, kWidth>{columns, begin});
}

// Adds up, per share and channel, kSums sums over the pixels. `terms`(share, channel) gives a
// thread's terms, whose Add(pixel, sums) adds to Floats<kWidth> sums[kSums].
// -> partial [slices, shares, kSums, channels].
template <typename Terms, int kWidth, int kSums>
struct ColumnSumsBody {
  struct Shared {
    float sums[kSums * kWidth][kThreads];
  };
  static constexpr int kPhases = 2;

  Columns columns;
  Terms terms;
  float* partial;

  MUSTER_HOST_DEVICE void Run(int phase, int64_t block, int thread, Shared& shared) const {
    if (phase == 0) {
      Floats<kWidth> sums[kSums] = {};
      const int64_t vector = columns.Vector(block, thread);
      if (vector < columns.vectors) {
        const auto mine = terms(columns.Share(block), vector * kWidth);
        columns.ForEachPixel(block, thread, [&](int64_t pixel) { mine.Add(pixel, sums); });
      }
      for (int s = 0; s < kSums; ++s) {
        for (int i = 0; i < kWidth; ++i) shared.sums[s * kWidth + i][thread] = sums[s][i];
      }
      return;
    }
    const int lanes = static_cast<int>(columns.lanes);
    for (int i = thread; i < kSums * kWidth * lanes; i += kThreads) {
      const int lane = i % lanes;
      const int value = i / lanes;
      const int64_t vector = columns.FirstVector(block) + lane;
      if (vector >= columns.vectors) continue;
      double sum = 0;
      for (int at = lane; at < kThreads; at += lanes) sum += shared.sums[value][at];
      const int64_t share = columns.Slice(block) * columns.shares + columns.Share(block);
      const int64_t line = (share * kSums + value / kWidth) * columns.vectors * kWidth;
      partial[line + vector * kWidth + value % kWidth] = static_cast<float>(sum);
    }
  }
};

// Adds up what the slices left, and calls finish(share, channel, sums [kSums]).
template <typename Finish, int kSums>
struct ColumnFinishBody {
  static constexpr int kLanes = 8;
  static constexpr int kPhases = 2;
  struct Shared {
    double sums[kSums][kThreads];
  };

  int64_t slices;
  int64_t shares;
  int64_t channels;
  const float* partial;
  Finish finish;

  int64_t blocks() const { return Quotient(shares * channels, kLanes); }

  MUSTER_HOST_DEVICE void Run(int phase, int64_t block, int thread, Shared& shared) const {
    const int64_t column = block * kLanes + thread % kLanes;
    if (column >= shares * channels) return;
    const int64_t share = column / channels;
    const int64_t channel = column % channels;
    if (phase == 0) {
      for (int s = 0; s < kSums; ++s) {
        double sum = 0;
        for (int64_t slice = thread / kLanes; slice < slices; slice += kThreads / kLanes) {
          sum += partial[((slice * shares + share) * kSums + s) * channels + channel];
        }
        shared.sums[s][thread] = sum;
      }
    } else if (thread < kLanes) {
      double sums[kSums] = {};
      for (int s = 0; s < kSums; ++s) {
        for (int at = thread; at < kThreads; at += kLanes) sums[s] += shared.sums[s][at];
      }
      finish(share, channel, sums);
    }
  }
};

// Both in turn.
template <int kWidth, int kSums, typename Terms, typename Finish>
void SumColumns(int64_t pixels, int64_t channels, int64_t shares, const Terms& terms,
                const Finish& finish) {
  const Columns columns(pixels, channels / kWidth, shares);
  float* const partial = Scratch<float>(columns.slices * shares * kSums * channels);
  if (partial == nullptr) return;
  ForEachBlock(columns.blocks(), ColumnSumsBody<Terms, kWidth, kSums>{columns, terms, partial});
  const ColumnFinishBody<Finish, kSums> last{columns.slices, shares, channels, partial, finish};
  ForEachBlock(last.blocks(), last);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_LAUNCH_CHANNEL_TILING_H_
