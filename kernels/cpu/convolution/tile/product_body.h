// Sums of the tile convolution; see kernels/cpu/convolution/tile/product.h. Compiled once per
// instruction set.
//
// A tile is kPixels pixels of one class times a panel of up to two vectors of channels. Its sums
// stay in registers over all taps and channels: each step broadcasts a value of every pixel and
// multiplies it by the panel's vectors, which are read in order. A block of pixels and a group of
// panels fit the second-level cache together.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PRODUCT_BODY_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PRODUCT_BODY_H_

#include <cstdint>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "kernels/cpu/convolution/tile/pack_body.h"
#include "kernels/cpu/convolution/tile/product.h"
#include "kernels/cpu/vector/vector.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Two vectors of sums per pixel, two vectors of weights and a value use nearly all vector
// registers, and the pixels' addresses nearly all general registers.
inline constexpr int kTilePixels = kRegisters == 32 ? 12 : 6;
inline constexpr int kTileBlockPixels = 40 * kTilePixels;
inline constexpr int64_t kTileBlockBytes = 192 << 10;
inline constexpr int64_t kStreamBytes = 16 << 20;
inline constexpr int64_t kStepBytes = 4;

struct FloatProducts {
  using Steps = FloatSteps;
  static Vector Add(Vector sum, Vector x, Vector weight) { return sum + x * weight; }
};

#if defined(__AVX512BF16__)
struct Bfloat16Products {
  using Steps = Bfloat16Steps;
  static Vector Add(Vector sum, Vector x, Vector weight) {
    return reinterpret_cast<Vector>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                     reinterpret_cast<__m512bh>(x),
                                                     reinterpret_cast<__m512bh>(weight)));
  }
};
#endif

// Epilogue of one panel.
struct TileEnd {
  float scale[2 * kLanes];
  float shift[2 * kLanes];
  float lowest, highest;
  DataType type;
  int64_t channels;  // channels of the panel, without padding
  int64_t offset;    // bytes from a pixel's target to the panel's
  int64_t addend;    // bytes from the target to the addend
  bool has_addend;
  bool stream;  // use non-temporal stores
};

// Pixels of one class: `count` pixels, followed by copies of the last one to fill a tile.
struct TileBlock {
  int64_t count;
  const char* sources[kTileBlockPixels + kTilePixels];
  char* targets[kTileBlockPixels + kTilePixels];
};

MUSTER_ALWAYS_INLINE Vector Broadcast(const char* p) {
  float value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value - Vector{};  // keeps -0, so that no instruction is generated
}

template <typename Products, int kPixels, int kVectors>
MUSTER_ALWAYS_INLINE void AddRun(const TileRun& run, const char* const* sources, const float* panel,
                                 Vector (&sums)[kPixels][kVectors]) {
  const char* x[kPixels];
#pragma clang loop unroll(full)
  for (int m = 0; m < kPixels; ++m) x[m] = sources[m] + run.source;
  const float* weights = panel + run.step * kVectors * kLanes;
#pragma clang loop unroll(disable)
  for (int64_t at = 0; at < run.steps * kStepBytes; at += kStepBytes) {
    Vector weight[kVectors];
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) weight[v] = Element<Vector>::Load(weights + v * kLanes);
    weights += kVectors * kLanes;
#pragma clang loop unroll(full)
    for (int m = 0; m < kPixels; ++m) {
      const Vector value = Broadcast(x[m] + at);
#pragma clang loop unroll(full)
      for (int v = 0; v < kVectors; ++v) sums[m][v] = Products::Add(sums[m][v], value, weight[v]);
    }
  }
}

// Stores the first `count` elements.
template <typename T>
MUSTER_ALWAYS_INLINE void StorePart(T* p, Vector value, int64_t count) {
  T whole[kLanes];
  Element<Vector>::Store(whole, value);
#if defined(__AVX512F__)
  const auto mask = static_cast<__mmask16>((1 << count) - 1);
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_epi32(p, mask, _mm512_loadu_si512(whole));
  } else {
    _mm256_mask_storeu_epi16(p, mask, _mm256_loadu_si256(reinterpret_cast<__m256i_u*>(whole)));
  }
#else
  for (int64_t i = 0; i < count; ++i) p[i] = whole[i];
#endif
}

template <typename T>
MUSTER_ALWAYS_INLINE Vector LoadPart(const T* p, int64_t count) {
  T whole[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) whole[i] = p[i];
  return Element<Vector>::Load(whole);
}

// Non-temporal store; p must be aligned to a vector of T.
template <typename T>
MUSTER_ALWAYS_INLINE void Stream(T* p, Vector value) {
  typedef int32_t Whole __attribute__((vector_size(kLanes * sizeof(T))));
  T whole[kLanes];
  Element<Vector>::Store(whole, value);
  Whole stored;
  __builtin_memcpy(&stored, whole, sizeof(stored));
  __builtin_nontemporal_store(stored, reinterpret_cast<Whole*>(p));
}

enum class TileStore { kWhole, kStream, kPart };

// `sums` are those of consecutive pixels.
template <TileStore kStore, typename T, int kPixels, int kVectors>
MUSTER_ALWAYS_INLINE void StoreTile(const TileEnd& end, int64_t pixels, char* const* targets,
                                    const Vector (&sums)[kPixels][kVectors]) {
  const Vector lowest = Vector{} + end.lowest;
  const Vector highest = Vector{} + end.highest;
  const int64_t last = end.channels - (kVectors - 1) * kLanes;  // channels in the last vector
#pragma clang loop unroll(full)
  for (int m = 0; m < kPixels; ++m) {
    if (m >= pixels) break;
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) {
      const bool part = kStore == TileStore::kPart && v == kVectors - 1;
      T* const to = reinterpret_cast<T*>(targets[m] + end.offset) + v * kLanes;
      Vector value = sums[m][v] * Element<Vector>::Load(end.scale + v * kLanes) +
                     Element<Vector>::Load(end.shift + v * kLanes);
      if (end.has_addend) {
        const T* const addend =
            reinterpret_cast<const T*>(reinterpret_cast<char*>(to) + end.addend);
        value = value + (part ? LoadPart(addend, last) : Element<Vector>::Load(addend));
      }
      value = value < lowest ? lowest : value;
      value = value > highest ? highest : value;
      if (part) {
        StorePart(to, value, last);
      } else if constexpr (kStore == TileStore::kStream) {
        Stream(to, value);
      } else {
        Element<Vector>::Store(to, value);
      }
    }
  }
}

template <typename T, int kPixels, int kVectors>
MUSTER_ALWAYS_INLINE void StoreTile(const TileEnd& end, int64_t pixels, char* const* targets,
                                    const Vector (&sums)[kPixels][kVectors]) {
  if (end.channels < kVectors * kLanes) {
    StoreTile<TileStore::kPart, T>(end, pixels, targets, sums);
  } else if (end.stream) {
    StoreTile<TileStore::kStream, T>(end, pixels, targets, sums);
  } else {
    StoreTile<TileStore::kWhole, T>(end, pixels, targets, sums);
  }
}

// Stores the first `pixels` pixels of the tile.
template <typename Products, int kPixels, int kVectors>
__attribute__((noinline)) void ComputeTile(const TileClass& pixel_class, const float* panel,
                                           const TileEnd& end, int64_t pixels,
                                           const char* const* sources, char* const* targets) {
  Vector sums[kPixels][kVectors] = {};
  for (int64_t r = 0; r < pixel_class.run_count; ++r) {
    AddRun<Products>(pixel_class.runs[r], sources, panel, sums);
  }
  switch (end.type) {
    case DataType::kBfloat16:
      return StoreTile<Bfloat16>(end, pixels, targets, sums);
    case DataType::kFloat16:
      return StoreTile<Float16>(end, pixels, targets, sums);
    default:  // kFloat32
      return StoreTile<float>(end, pixels, targets, sums);
  }
}

// For tiles with one run, whose pixels are read from memory for the first time. With several runs,
// the previous tile has read most of them.
inline void PrefetchTile(const TileRun& run, const char* const* sources) {
  for (int m = 0; m < kTilePixels; ++m) {
    const char* const begin = sources[m] + run.source;
    for (int64_t at = 0; at < run.steps * kStepBytes; at += 64) __builtin_prefetch(begin + at);
  }
}

template <typename Products, int kVectors>
inline void ComputeBlock(const TileClass& pixel_class, const float* panel, const TileEnd& end,
                         const TileBlock& block, bool first) {
  int64_t at = 0;
  while (at < block.count) {
    const int64_t left = block.count - at;
    if (first && pixel_class.run_count == 1 && left >= 2 * kTilePixels) {
      PrefetchTile(pixel_class.runs[0], block.sources + at + kTilePixels);
    }
    const char* const* const sources = block.sources + at;
    char* const* const targets = block.targets + at;
    if (left > kTilePixels * 2 / 3) {
      ComputeTile<Products, kTilePixels, kVectors>(pixel_class, panel, end, left, sources, targets);
      at += kTilePixels;
    } else if (left > kTilePixels / 3) {
      ComputeTile<Products, kTilePixels * 2 / 3, kVectors>(pixel_class, panel, end, left, sources,
                                                           targets);
      at += kTilePixels * 2 / 3;
    } else {
      ComputeTile<Products, kTilePixels / 3, kVectors>(pixel_class, panel, end, left, sources,
                                                       targets);
      at += kTilePixels / 3;
    }
  }
}

// Iterates over the pixels of a class: images, their rows, their columns.
class TileCursor {
 public:
  TileCursor(const TileProduct& product, const TileClass& pixel_class, int64_t pixel)
      : plan_(*product.plan), class_(pixel_class) {
    column_ = pixel % class_.column_count;
    row_ = pixel / class_.column_count % class_.row_count;
    const int64_t image = pixel / class_.column_count / class_.row_count;
    source_image_ = static_cast<const char*>(product.source) + image * plan_.source_image_bytes;
    target_image_ = static_cast<char*>(product.target) + image * plan_.target_image_bytes;
  }

  void Fill(int64_t count, TileBlock& block) {
    block.count = count;
    for (int64_t i = 0; i < count; ++i) {
      block.sources[i] = source_image_ + class_.rows[row_].source + class_.columns[column_].source;
      block.targets[i] = target_image_ + class_.rows[row_].target + class_.columns[column_].target;
      if (++column_ < class_.column_count) continue;
      column_ = 0;
      if (++row_ < class_.row_count) continue;
      row_ = 0;
      source_image_ += plan_.source_image_bytes;
      target_image_ += plan_.target_image_bytes;
    }
    for (int64_t i = count; i < count + kTilePixels; ++i) {
      block.sources[i] = block.sources[count - 1];
      block.targets[i] = block.targets[count - 1];
    }
  }

 private:
  const TilePlan& plan_;
  const TileClass& class_;
  int64_t column_, row_;
  const char* source_image_;
  char* target_image_;
};

// A target that does not stay in the caches until it is read should not be read before it is
// written, either. Whole cache lines must be written.
inline bool StreamsTarget(const TileProduct& product) {
  const TilePlan& plan = *product.plan;
  const int64_t pixel_bytes =
      plan.target_channels * static_cast<int64_t>(SizeOf(product.target_type));
  return product.samples * plan.target_image_bytes >= kStreamBytes && pixel_bytes % 64 == 0 &&
         product.addend == nullptr;
}

// A conditional per element would compile to a masked load from the null pointer, whose suppressed
// fault costs hundreds of cycles.
inline void FillEnd(const float* values, int64_t first, int64_t channels, float otherwise,
                    float* to) {
  if (values == nullptr) {
    for (int64_t c = 0; c < channels; ++c) to[c] = otherwise;
    return;
  }
  for (int64_t c = 0; c < channels; ++c) to[c] = values[first + c];
}

inline TileEnd EndOf(const TileProduct& product, int64_t panel) {
  const TilePanels panels = {.lanes = kLanes, .out_channels = product.plan->target_channels};
  const int64_t first = panel * panels.full_width();
  TileEnd end = {};
  end.channels = panels.channels(panel);
  FillEnd(product.scale, first, end.channels, 1, end.scale);
  FillEnd(product.shift, first, end.channels, 0, end.shift);
  end.lowest = product.activation == Activation::kNone ? -__builtin_inff() : 0;
  end.highest = product.activation == Activation::kRelu6 ? 6 : __builtin_inff();
  end.type = product.target_type;
  end.offset = first * static_cast<int64_t>(SizeOf(product.target_type));
  end.stream = StreamsTarget(product);
  end.has_addend = product.addend != nullptr;
  end.addend = end.has_addend ? static_cast<const char*>(product.addend) -
                                    static_cast<const char*>(product.target)
                              : 0;
  return end;
}

// Computes panels `first` to `last` of every class, for this slice's pixels.
template <typename Products>
inline void ComputeGroup(const TileProduct& product, int64_t first, int64_t last,
                         const float* packed, int64_t panel_elements, int slice, int slices) {
  const TilePlan& plan = *product.plan;
  const TilePanels panels = {.lanes = kLanes, .out_channels = plan.target_channels};
  const int64_t pixel_bytes = plan.steps() * kStepBytes;
  const int64_t fitting = kTileBlockBytes / (pixel_bytes * kTilePixels) * kTilePixels;
  const int64_t block_pixels = fitting < kTilePixels        ? kTilePixels
                               : fitting > kTileBlockPixels ? kTileBlockPixels
                                                            : fitting;
  TileBlock block;
  for (int64_t c = 0; c < plan.class_count; ++c) {
    const TileClass& pixel_class = plan.classes[c];
    const int64_t pixels = product.samples * pixel_class.row_count * pixel_class.column_count;
    const int64_t tiles = (pixels + kTilePixels - 1) / kTilePixels;
    const int64_t begin = tiles * slice / slices * kTilePixels;
    const int64_t tiles_end = tiles * (slice + 1) / slices * kTilePixels;
    const int64_t end = tiles_end < pixels ? tiles_end : pixels;
    TileCursor cursor(product, pixel_class, begin);
    for (int64_t at = begin; at < end; at += block_pixels) {
      cursor.Fill(end - at < block_pixels ? end - at : block_pixels, block);
      for (int64_t panel = first; panel < last; ++panel) {
        const TileEnd tile_end = EndOf(product, panel);
        const float* const weights = packed + (panel - first) * panel_elements;
        if (panels.width(panel) > kLanes) {
          ComputeBlock<Products, 2>(pixel_class, weights, tile_end, block, panel == 0);
        } else {
          ComputeBlock<Products, 1>(pixel_class, weights, tile_end, block, panel == 0);
        }
      }
    }
  }
}

template <typename Products>
inline void ComputeProduct(const TileProduct& product, int slice, int slices) {
  const TilePlan& plan = *product.plan;
  const TilePanels panels = {.lanes = kLanes, .out_channels = plan.target_channels};
  const int64_t panel_elements = plan.tap_count * plan.steps() * panels.full_width();
  for (int64_t first = 0; first < panels.count(); first += plan.group_panels) {
    const int64_t end = first + plan.group_panels;
    const int64_t last = end < panels.count() ? end : panels.count();
    const float* packed = product.weights + first * panel_elements;
    if (plan.packs()) {
      auto* const scratch = static_cast<float*>(product.scratch);
      for (int64_t panel = first; panel < last; ++panel) {
        PackPanel<typename Products::Steps>(plan, product.weights, panel,
                                            scratch + (panel - first) * panel_elements);
      }
      packed = scratch;
    }
    ComputeGroup<Products>(product, first, last, packed, panel_elements, slice, slices);
  }
#if defined(__SSE2__)
  // Non-temporal stores are visible to other threads only after a fence.
  if (StreamsTarget(product)) __builtin_ia32_sfence();
#endif
}

inline void TileConvolution(const TileProduct& product, int slice, int slices) {
#if defined(__AVX512BF16__)
  if (product.plan->type == DataType::kBfloat16) {
    return ComputeProduct<Bfloat16Products>(product, slice, slices);
  }
#endif
  ComputeProduct<FloatProducts>(product, slice, slices);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PRODUCT_BODY_H_
