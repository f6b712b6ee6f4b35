// Assignment of an NHWC array, [pixels, channels], to blocks and threads for operations whose
// parameters or sums are per channel: each thread processes one vector of channels at many pixels.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_CHANNEL_TILING_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_CHANNEL_TILING_H_

#include <cstdint>

#include "kernels/cuda/launch/launch.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// A block covers `lanes` vectors of channels, which are adjacent in memory, times `rows` pixels at
// a time. `groups` blocks cover all channels of a slice of the pixels, and `slices` times as many
// cover the array. Operations that compute several independent sums over the same pixels (one per
// kernel position, for example) repeat this for each of `sums`.
struct ChannelTiling {
  int64_t pixels;
  int64_t vectors;  // per pixel
  int64_t sums;
  int64_t lanes;  // a power of two
  int64_t rows;
  int64_t groups;
  int64_t slices;

  ChannelTiling(int64_t pixels, int64_t vectors, int64_t sums = 1)
      : pixels(pixels), vectors(vectors), sums(sums), lanes(1) {
    constexpr int64_t kMaxLanes = 64;
    constexpr int64_t kPixels = 4;  // minimum per thread, if there are that many
    while (lanes < vectors && lanes < kMaxLanes) lanes *= 2;
    rows = kThreads / lanes;
    groups = CeilDiv(vectors, lanes);
    slices = Min(CeilDiv(pixels, rows * kPixels), kReductionBlocks / (groups * sums));
    slices = Max(slices, 1);
  }

  int64_t blocks() const { return slices * sums * groups; }
  MUSTER_HOST_DEVICE int64_t SumIndex(int64_t block) const { return block / groups % sums; }
  MUSTER_HOST_DEVICE int64_t Slice(int64_t block) const { return block / groups / sums; }
  MUSTER_HOST_DEVICE int64_t FirstVector(int64_t block) const { return block % groups * lanes; }

  // The vector of channels that the thread processes; the thread is idle if it is not less than
  // `vectors`.
  MUSTER_HOST_DEVICE int64_t Vector(int64_t block, int thread) const {
    return FirstVector(block) + thread % lanes;
  }
  // Calls visit(pixel) for each pixel that the thread processes.
  template <typename Visit>
  MUSTER_HOST_DEVICE void ForEachPixel(int64_t block, int thread, const Visit& visit) const {
    const int64_t stride = slices * rows;
    for (int64_t p = Slice(block) * rows + thread / lanes; p < pixels; p += stride) visit(p);
  }
};

template <typename Begin, int kWidth>
struct ForEachPixelBody {
  struct Shared {};
  static constexpr int kPhases = 1;

  ChannelTiling tiling;
  Begin begin;
  MUSTER_HOST_DEVICE void Run(int, int64_t block, int thread, Shared&) const {
    const int64_t vector = tiling.Vector(block, thread);
    if (vector >= tiling.vectors) return;
    const auto visit = begin(vector * kWidth);
    tiling.ForEachPixel(block, thread, visit);
  }
};

// In each thread, calls begin(first of the thread's kWidth channels), and the function that it
// returns with each of the thread's pixels. `channels` is a multiple of kWidth.
template <int kWidth, typename Begin>
void ForEachPixel(int64_t pixels, int64_t channels, const Begin& begin) {
  const ChannelTiling tiling(pixels, channels / kWidth);
  ForEachBlock(tiling.blocks(), ForEachPixelBody<Begin, kWidth>{tiling, begin});
}

// First kernel of SumOverPixels -> partial [slices, sums, kSums, channels].
template <typename Terms, int kWidth, int kSums>
struct PixelSumsBody {
  struct Shared {
    float sums[kSums * kWidth][kThreads];
  };
  static constexpr int kPhases = 2;

  ChannelTiling tiling;
  Terms terms;
  float* partial;

  MUSTER_HOST_DEVICE void Run(int phase, int64_t block, int thread, Shared& shared) const {
    if (phase == 0) {
      Floats<kWidth> sums[kSums] = {};
      const int64_t vector = tiling.Vector(block, thread);
      if (vector < tiling.vectors) {
        const auto thread_terms = terms(tiling.SumIndex(block), vector * kWidth);
        tiling.ForEachPixel(block, thread, [&](int64_t pixel) { thread_terms.Add(pixel, sums); });
      }
      for (int s = 0; s < kSums; ++s) {
        for (int i = 0; i < kWidth; ++i) shared.sums[s * kWidth + i][thread] = sums[s][i];
      }
      return;
    }
    const int lanes = static_cast<int>(tiling.lanes);
    for (int i = thread; i < kSums * kWidth * lanes; i += kThreads) {
      const int lane = i % lanes;
      const int value = i / lanes;
      const int64_t vector = tiling.FirstVector(block) + lane;
      if (vector >= tiling.vectors) continue;
      double sum = 0;
      for (int at = lane; at < kThreads; at += lanes) sum += shared.sums[value][at];
      const int64_t index = tiling.Slice(block) * tiling.sums + tiling.SumIndex(block);
      const int64_t row = (index * kSums + value / kWidth) * tiling.vectors * kWidth;
      partial[row + vector * kWidth + value % kWidth] = static_cast<float>(sum);
    }
  }
};

// Second kernel of SumOverPixels: adds up the partial sums of all slices.
template <typename Finish, int kSums>
struct PixelSumsFinishBody {
  static constexpr int kLanes = 8;
  static constexpr int kPhases = 2;
  struct Shared {
    double sums[kSums][kThreads];
  };

  int64_t slices;
  int64_t sums;
  int64_t channels;
  const float* partial;
  Finish finish;

  int64_t blocks() const { return CeilDiv(sums * channels, kLanes); }

  MUSTER_HOST_DEVICE void Run(int phase, int64_t block, int thread, Shared& shared) const {
    const int64_t column = block * kLanes + thread % kLanes;
    if (column >= sums * channels) return;
    const int64_t index = column / channels;
    const int64_t channel = column % channels;
    if (phase == 0) {
      for (int s = 0; s < kSums; ++s) {
        double sum = 0;
        for (int64_t slice = thread / kLanes; slice < slices; slice += kThreads / kLanes) {
          sum += partial[((slice * sums + index) * kSums + s) * channels + channel];
        }
        shared.sums[s][thread] = sum;
      }
    } else if (thread < kLanes) {
      double totals[kSums] = {};
      for (int s = 0; s < kSums; ++s) {
        for (int at = thread; at < kThreads; at += kLanes) totals[s] += shared.sums[s][at];
      }
      finish(index, channel, totals);
    }
  }
};

// For each index below `sums`, computes kSums sums over the pixels per channel, and calls
// finish(index, channel, const double totals[kSums]) for each channel.
//
// In each thread, terms(index, first of the thread's kWidth channels) returns an object whose
// Add(pixel, Floats<kWidth> sums[kSums]) adds the pixel's terms. `channels` is a multiple of
// kWidth.
template <int kWidth, int kSums, typename Terms, typename Finish>
void SumOverPixels(int64_t pixels, int64_t channels, int64_t sums, const Terms& terms,
                   const Finish& finish) {
  const ChannelTiling tiling(pixels, channels / kWidth, sums);
  float* const partial = Scratch<float>(tiling.slices * sums * kSums * channels);
  if (partial == nullptr) return;
  ForEachBlock(tiling.blocks(), PixelSumsBody<Terms, kWidth, kSums>{tiling, terms, partial});
  const PixelSumsFinishBody<Finish, kSums> last{tiling.slices, sums, channels, partial, finish};
  ForEachBlock(last.blocks(), last);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_LAUNCH_CHANNEL_TILING_H_
