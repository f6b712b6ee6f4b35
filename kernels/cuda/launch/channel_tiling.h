// Assignment of an NHWC array, [pixels, channels], to blocks and threads for operations whose
// parameters or sums are per channel: each thread processes one vector of channels at many pixels.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_CHANNEL_TILING_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_CHANNEL_TILING_H_

#include <cstdint>
#include <utility>

#include "kernels/cuda/launch/launch.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Maximum number of lanes of a block that computes sums: 128 bytes of 16-byte vectors, a whole line
// of the cache. With few channels per block, the partial sums that its last block adds up are few.
inline constexpr int kSumLanes = 8;
inline constexpr int kMaxLanes = 64;

// A block covers `lanes` vectors of channels, which are adjacent in memory, times `rows` pixels at
// a time. `groups` blocks cover all channels of a slice of the pixels, and `slices` times as many
// cover the array. Operations that compute several independent sums over the same pixels (one per
// kernel position, for example) repeat this for each of `sums`. Indices of blocks and threads are
// divided in 32 bits, or by shifts.
struct ChannelTiling {
  int64_t pixels;
  int64_t vectors;  // per pixel
  uint32_t sums;
  uint32_t groups;
  uint32_t slices;
  int lane_bits = 0;  // lanes() is a power of two

  ChannelTiling(int64_t pixels, int64_t vectors, int64_t sums, int max_lanes, int64_t max_blocks)
      : pixels(pixels), vectors(vectors), sums(static_cast<uint32_t>(sums)) {
    constexpr int64_t kPixels = 4;  // minimum per thread, if there are that many
    while (lanes() < vectors && lanes() < max_lanes) ++lane_bits;
    groups = static_cast<uint32_t>(CeilDiv(vectors, lanes()));
    const int64_t most = max_blocks / (int64_t{groups} * sums);
    slices = static_cast<uint32_t>(Max(Min(CeilDiv(pixels, rows() * kPixels), most), 1));
  }

  int64_t blocks() const { return int64_t{slices} * sums * groups; }
  MUSTER_HOST_DEVICE int lanes() const { return 1 << lane_bits; }
  MUSTER_HOST_DEVICE int rows() const { return kThreads >> lane_bits; }
  // Index of the block's sum and channels among sums * groups.
  MUSTER_HOST_DEVICE uint32_t SumAndGroup(uint32_t block) const { return block % (sums * groups); }
  MUSTER_HOST_DEVICE uint32_t SumIndex(uint32_t block) const { return block / groups % sums; }
  MUSTER_HOST_DEVICE uint32_t Slice(uint32_t block) const { return block / (groups * sums); }
  MUSTER_HOST_DEVICE int64_t FirstVector(uint32_t block) const {
    return static_cast<int64_t>(block % groups) << lane_bits;
  }

  // The vector of channels that the thread processes; the thread is idle if it is not less than
  // `vectors`.
  MUSTER_HOST_DEVICE int64_t Vector(uint32_t block, int thread) const {
    return FirstVector(block) + (thread & (lanes() - 1));
  }
  // Calls visit(pixel) for each pixel that the thread processes, in ascending order. If `visit` has
  // a Read, calls visit.Use(pixel, visit.Read(pixel)) instead, with the reads of several pixels
  // before the first use: a thread has Visit::kInFlight pixels' loads in flight.
  template <typename Visit>
  MUSTER_HOST_DEVICE void ForEachPixel(uint32_t block, int thread, Visit& visit) const {
    const int64_t stride = static_cast<int64_t>(slices) * rows();
    int64_t pixel = static_cast<int64_t>(Slice(block)) * rows() + (thread >> lane_bits);
    if constexpr (requires { visit.Read(pixel); }) {
      constexpr int kInFlight = Visit::kInFlight;
      for (; pixel + (kInFlight - 1) * stride < pixels; pixel += kInFlight * stride) {
        decltype(visit.Read(pixel)) read[kInFlight];
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) read[i] = visit.Read(pixel + i * stride);
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) visit.Use(pixel + i * stride, read[i]);
      }
      for (; pixel < pixels; pixel += stride) visit.Use(pixel, visit.Read(pixel));
    } else {
      for (; pixel < pixels; pixel += stride) visit(pixel);
    }
  }
};

template <typename Begin, int kWidth>
struct ForEachPixelBody {
  struct Shared {};
  static constexpr int kPhases = 1;
  static constexpr int kBlocksPerMultiprocessor = [] {
    if constexpr (requires { Begin::kBlocksPerMultiprocessor; }) {
      return Begin::kBlocksPerMultiprocessor;
    }
    return 4;
  }();

  ChannelTiling tiling;
  Begin begin;
  MUSTER_HOST_DEVICE void Run(int, int64_t block, int thread, Shared&) const {
    const auto index = static_cast<uint32_t>(block);
    const int64_t vector = tiling.Vector(index, thread);
    if (vector >= tiling.vectors) return;
    auto visit = begin(vector * kWidth);
    tiling.ForEachPixel(index, thread, visit);
  }
};

// In each thread, calls begin(first of the thread's kWidth channels), and visits the thread's
// pixels with what it returns; see ChannelTiling::ForEachPixel. `channels` is a multiple of kWidth.
// The grid is what the GPU can run at once.
template <int kWidth, typename Begin>
void ForEachPixel(int64_t pixels, int64_t channels, const Begin& begin) {
  using Body = ForEachPixelBody<Begin, kWidth>;
  const ChannelTiling tiling(pixels, channels / kWidth, 1, kMaxLanes, ResidentBlocks<Body>());
  ForEachBlock(tiling.blocks(), Body{tiling, begin});
}

// The kernel of SumOverPixels. Each block adds up the terms of its slice, per channel, and writes
// its sums to `partial`; the last of the blocks that share channels adds up those of all slices, in
// the order of the slices.
template <typename Terms, typename Finish, int kWidth, int kSums>
struct PixelSumsBody {
  static constexpr int kValues = kSums * kWidth;  // per lane
  static constexpr int kChunks = (kValues * kSumLanes + kThreads - 1) / kThreads;
  // With few sums, three blocks fit on a multiprocessor, and all blocks of the largest GPU run at
  // once. A constant, so that the order of additions depends on shapes alone.
  static constexpr bool kFewSums = kValues <= 24;
  static constexpr int kBlocksPerMultiprocessor = kFewSums ? 3 : 1;
  static constexpr int64_t kMaxBlocks = kFewSums ? 384 : kReductionBlocks;
  struct Shared {
    float sums[kValues][kThreads];
    double totals[kChunks][kThreads];
    bool last;
  };
  static constexpr int kPhases = 5;

  ChannelTiling tiling;
  Terms terms;
  Finish finish;
  float* partial;      // [sums * groups, slices, columns()]
  uint32_t* arrivals;  // [sums * groups], zero before and after the kernel

  MUSTER_HOST_DEVICE void Run(int phase, int64_t wide_block, int thread, Shared& shared) const {
    const auto block = static_cast<uint32_t>(wide_block);
    if (phase == 0) return AddPixels(block, thread, shared);
    if (phase == 1) return WritePartial(block, thread, shared);
    if (phase == 2) {
      if (thread == 0) {
        shared.last = ArriveLast(arrivals + tiling.SumAndGroup(block), tiling.slices);
      }
      return;
    }
    if (!shared.last) return;
    phase == 3 ? AddPartial(block, thread, shared) : FinishChannels(block, thread, shared);
  }

 private:
  using ThreadTerms = decltype(std::declval<const Terms&>()(0, 0));
  struct Accumulator {
    const ThreadTerms& terms;
    Floats<kWidth>* sums;
    MUSTER_HOST_DEVICE void operator()(int64_t pixel) const { terms.Add(pixel, sums); }
  };
  // For terms with a Read.
  struct BatchAccumulator {
    static constexpr int kInFlight = ThreadTerms::kInFlight;
    const ThreadTerms& terms;
    Floats<kWidth>* sums;
    MUSTER_HOST_DEVICE auto Read(int64_t pixel) const { return terms.Read(pixel); }
    template <typename Values>
    MUSTER_HOST_DEVICE void Use(int64_t pixel, const Values& values) const {
      terms.Add(pixel, values, sums);
    }
  };

  MUSTER_HOST_DEVICE void AddPixels(uint32_t block, int thread, Shared& shared) const {
    Floats<kWidth> sums[kSums] = {};
    const int64_t vector = tiling.Vector(block, thread);
    if (vector < tiling.vectors) {
      const auto own = terms(tiling.SumIndex(block), vector * kWidth);
      if constexpr (requires { own.Read(0); }) {
        BatchAccumulator visit{own, sums};
        tiling.ForEachPixel(block, thread, visit);
      } else {
        Accumulator visit{own, sums};
        tiling.ForEachPixel(block, thread, visit);
      }
    }
    for (int s = 0; s < kSums; ++s) {
      for (int i = 0; i < kWidth; ++i) shared.sums[s * kWidth + i][thread] = sums[s][i];
    }
  }

  MUSTER_HOST_DEVICE void WritePartial(uint32_t block, int thread, const Shared& shared) const {
    float* const own = PartialOf(block) + static_cast<int64_t>(tiling.Slice(block)) * columns();
    for (int column = thread; column < columns(); column += kThreads) {
      double sum = 0;
      for (int at = column & (tiling.lanes() - 1); at < kThreads; at += tiling.lanes()) {
        sum += shared.sums[column >> tiling.lane_bits][at];
      }
      own[column] = static_cast<float>(sum);
    }
    PublishWrites();
  }

  MUSTER_HOST_DEVICE void AddPartial(uint32_t block, int thread, Shared& shared) const {
    const int at_once = columns_at_once();
    const int threads = kThreads / at_once;
    const int first = thread / at_once;
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int column = thread - first * at_once + chunk * kThreads;
      double sum = 0;
      if (first < threads && column < columns()) {
        const float* const from = PartialOf(block) + column;
        int64_t slice = first;
        constexpr int kInFlight = 8;
        for (; slice + (kInFlight - 1) * threads < tiling.slices; slice += kInFlight * threads) {
          float read[kInFlight];
#pragma unroll
          for (int i = 0; i < kInFlight; ++i) {
            read[i] = ReadPublished(from + (slice + i * threads) * columns());
          }
#pragma unroll
          for (int i = 0; i < kInFlight; ++i) sum += read[i];
        }
        for (; slice < tiling.slices; slice += threads) {
          sum += ReadPublished(from + slice * columns());
        }
      }
      shared.totals[chunk][thread] = sum;
    }
  }

  MUSTER_HOST_DEVICE void FinishChannels(uint32_t block, int thread, const Shared& shared) const {
    const int at_once = columns_at_once();
    const int threads = kThreads / at_once;
    for (int at = thread; at < kWidth << tiling.lane_bits; at += kThreads) {
      const int lane = at & (tiling.lanes() - 1);
      const int element = at >> tiling.lane_bits;
      const int64_t vector = tiling.FirstVector(block) + lane;
      if (vector >= tiling.vectors) continue;
      double totals[kSums] = {};
      for (int s = 0; s < kSums; ++s) {
        const int column = ((s * kWidth + element) << tiling.lane_bits) + lane;
        const double* const sums = shared.totals[column / kThreads] + column % kThreads;
        for (int i = 0; i < threads; ++i) totals[s] += sums[i * at_once];
      }
      finish(tiling.SumIndex(block), vector * kWidth + element, totals);
    }
  }

  // The partial sums of the blocks that share the block's channels.
  MUSTER_HOST_DEVICE float* PartialOf(uint32_t block) const {
    return partial + static_cast<int64_t>(tiling.SumAndGroup(block)) * tiling.slices * columns();
  }
  // Values of a block: value v of lane l is column v * lanes + l.
  MUSTER_HOST_DEVICE int columns() const { return kValues << tiling.lane_bits; }
  MUSTER_HOST_DEVICE int columns_at_once() const {
    return columns() < kThreads ? columns() : kThreads;
  }
};

// For each index below `sums`, computes kSums sums over the pixels per channel, and calls
// finish(index, channel, const double totals[kSums]) for each channel. One kernel, whose order of
// additions depends on shapes alone.
//
// In each thread, terms(index, first of the thread's kWidth channels) returns an object whose
// Add(pixel, Floats<kWidth> sums[kSums]) adds the pixel's terms. With a Read and a kInFlight, as in
// ChannelTiling::ForEachPixel, it is Add(pixel, what Read returned, sums). `channels` is a multiple
// of kWidth.
template <int kWidth, int kSums, typename Terms, typename Finish>
void SumOverPixels(int64_t pixels, int64_t channels, int64_t sums, const Terms& terms,
                   const Finish& finish) {
  using Body = PixelSumsBody<Terms, Finish, kWidth, kSums>;
  const ChannelTiling tiling(pixels, channels / kWidth, sums, kSumLanes, Body::kMaxBlocks);
  const int64_t sets = sums * tiling.groups;
  float* const partial =
      Scratch<float>(sets * tiling.slices * (int64_t{Body::kValues} << tiling.lane_bits));
  uint32_t* const arrivals = ZeroedCounters(sets);
  if (partial == nullptr || arrivals == nullptr) return;
  ForEachBlock(tiling.blocks(), Body{tiling, terms, finish, partial, arrivals});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_LAUNCH_CHANNEL_TILING_H_
