// The loop order of the depthwise kernels for 3x3, and their software prefetch. Compiled once per
// instruction set.
//
// Channel blocks are the inner loop within a band of rows that stays in the cache, so that memory
// is read in order. The last block overlaps the previous one if the channels do not fill it.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_BANDS_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_BANDS_H_

#include <cstdint>

#include "kernels/cpu/vector/vector.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Bytes of input and output of a band; smaller images are not split.
inline constexpr int64_t kDepthwiseBandBytes = 128 << 10;
// Bytes of input and output above which they do not stay in the caches between layers.
inline constexpr int64_t kUncachedBytes = 8 << 20;
// Number of values accumulated in float32 before the sums are added to sums of similar magnitude.
inline constexpr int64_t kDepthwiseBandPixels = 1024;

// A convolution between input [samples, height, width, channels] and output [samples, out_height,
// out_width, channels], in either direction.
struct ThreeGeometry {
  int64_t samples, height, width, out_height, out_width, channels, padding;

  int64_t padded_channels() const { return (channels + 15) / 16 * 16; }
  // Number of blocks of kWidth channels.
  template <int kWidth>
  int64_t blocks() const {
    return (channels + kWidth - 1) / kWidth;
  }
  // First channel of block i. The last block overlaps the previous one if it would exceed the
  // channels.
  template <int kWidth>
  int64_t Block(int64_t i) const {
    return (i + 1) * kWidth <= channels ? i * kWidth : channels - kWidth;
  }
};

// A range [sample_begin, sample_end) of samples and, within one sample, a range [begin, end) of
// output rows.
struct DepthwiseBand {
  int64_t sample_begin, sample_end;
  int64_t begin, end;
};

// Calls visit(band) for the whole output: several whole images, or an even number of rows of one
// image, as many as kBandBytes allow, but at least two.
template <int kStride, typename S, int64_t kBandBytes = kDepthwiseBandBytes, typename Visit>
inline void ForEachBand(const ThreeGeometry& g, const Visit& visit) {
  const int64_t row_bytes = (kStride * g.width + g.out_width) * g.channels * sizeof(S);
  if (row_bytes * g.out_height > kDepthwiseBandBytes) {
    const int64_t rows = kBandBytes / row_bytes / 2 * 2;
    const int64_t step = rows > 2 ? rows : 2;
    for (int64_t sample = 0; sample < g.samples; ++sample) {
      for (int64_t h = 0; h < g.out_height; h += step) {
        visit(DepthwiseBand{sample, sample + 1, h,
                            h + step < g.out_height ? h + step : g.out_height});
      }
    }
    return;
  }
  const int64_t by_bytes = kDepthwiseBandBytes / (row_bytes * g.out_height);
  const int64_t by_pixels = kDepthwiseBandPixels / (g.out_height * g.out_width) + 1;
  const int64_t step = by_bytes < by_pixels ? by_bytes : by_pixels;
  for (int64_t sample = 0; sample < g.samples; sample += step) {
    visit(DepthwiseBand{sample, sample + step < g.samples ? sample + step : g.samples, 0,
                        g.out_height});
  }
}

// Prefetches the next band in order, while the blocks of the current band access memory out of
// order. The CPU drops prefetches while memory is busy, so they are repeated, and few are issued at
// once: often enough for uncached arrays that nearly all cache lines arrive in time, and less often
// for others, where the cost would exceed the benefit. Prefetches beyond an array's end have no
// effect.
class NextBand {
 public:
  template <int kStride, typename S>
  static NextBand After(const ThreeGeometry& g, const DepthwiseBand& band, const S* in,
                        const S* out) {
    const int64_t in_step = g.width * g.channels, out_step = g.out_width * g.channels;
    const int64_t elements = g.samples * (g.height * in_step + g.out_height * out_step);
    const int64_t sample = band.sample_end - 1;
    const int64_t in_row = sample * g.height + kStride * band.end + 1;
    const int64_t out_row = sample * g.out_height + band.end;
    NextBand next;
    next.in_ = reinterpret_cast<const char*>(in + in_row * in_step);
    next.out_ = reinterpret_cast<const char*>(out + out_row * out_step);
    next.uncached_ = elements * static_cast<int64_t>(sizeof(S)) > kUncachedBytes;
    return next;
  }

  // Prefetches kBytes of either array, kTimes in total if they are uncached.
  template <int kBytes, int kTimes>
  MUSTER_ALWAYS_INLINE void ReadIn() {
    Read<kBytes, kTimes>(in_);
  }
  template <int kBytes, int kTimes>
  MUSTER_ALWAYS_INLINE void ReadOut() {
    Read<kBytes, kTimes>(out_);
  }
#if defined(__AVX512F__)
  // Prefetches for writing.
  template <int kBytes>
  MUSTER_ALWAYS_INLINE void WriteIn() {
    Write<kBytes>(in_);
  }
  template <int kBytes>
  MUSTER_ALWAYS_INLINE void WriteOut() {
    Write<kBytes>(out_);
  }
#endif

 private:
  static constexpr int64_t kCacheLineBytes = 64;
  static constexpr int64_t kBetweenBytes = 1024;  // between repeated prefetches of a cache line

  template <int kBytes, int kTimes>
  MUSTER_ALWAYS_INLINE void Read(const char*& at) const {
    const auto read = [](const char* p) { __builtin_prefetch(p, 0, 3); };
    Request<kBytes, 0, kTimes / 4>(at, read);
    if (uncached_) Request<kBytes, kTimes / 4, kTimes>(at, read);
    at += kBytes;
  }
#if defined(__AVX512F__)
  template <int kBytes>
  MUSTER_ALWAYS_INLINE void Write(const char*& at) const {
    if (!uncached_) return;
    Request<kBytes, 0, 4>(at, [](const char* p) { __asm__ volatile("prefetchw (%0)" : : "r"(p)); });
    at += kBytes;
  }
#endif

  // Issues repetitions kBegin to kEnd - 1.
  template <int kBytes, int kBegin, int kEnd, typename Visit>
  static MUSTER_ALWAYS_INLINE void Request(const char* at, const Visit& visit) {
#pragma clang loop unroll(full)
    for (int i = 0; i < kBytes; i += kCacheLineBytes) {
#pragma clang loop unroll(full)
      for (int k = kBegin; k < kEnd; ++k) visit(at + i - k * kBetweenBytes);
    }
  }

  const char* in_;
  const char* out_;
  bool uncached_;
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_BANDS_H_
