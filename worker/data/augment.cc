#include "worker/data/augment.h"

#include <algorithm>
#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/philox.h"
#include "worker/data/purpose.h"

namespace muster::data {
namespace {

// `pixels` of `channels` bytes each, from left to right or the other way.
void CopyRow(const uint8_t* in, int64_t pixels, int64_t channels, bool flip, uint8_t* out) {
  if (!flip) {
    std::memcpy(out, in, static_cast<size_t>(pixels * channels));
    return;
  }
  if (channels == 1) {
    std::reverse_copy(in, in + pixels, out);
    return;
  }
  for (int64_t x = 0; x < pixels; ++x) {
    std::memcpy(out + x * channels, in + (pixels - 1 - x) * channels,
                static_cast<size_t>(channels));
  }
}

}  // namespace

Placement DrawPlacement(const AugmentOptions& options, uint64_t epoch, uint64_t sample) {
  Placement placement;
  if (options.crop_padding == 0 && !options.flip) return placement;
  const kernels::PhiloxCounter words =
      kernels::Philox4x32({static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32),
                           static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)},
                          kernels::DerivePhiloxKey(options.seed, kAugmentPurpose));
  const auto padding = static_cast<int32_t>(options.crop_padding);
  const uint32_t positions = 2 * options.crop_padding + 1;
  placement.dy = static_cast<int32_t>(kernels::UniformBelow(words[0], positions)) - padding;
  placement.dx = static_cast<int32_t>(kernels::UniformBelow(words[1], positions)) - padding;
  placement.flip = options.flip && (words[2] & 1) != 0;
  return placement;
}

void PlaceImage(const uint8_t* image, const DatasetInfo& info, const Placement& placement,
                uint8_t* out) {
  const int64_t height = info.height, width = info.width, channels = info.channels;
  const int64_t row_bytes = width * channels;
  if (placement.dy == 0 && placement.dx == 0 && !placement.flip) {
    std::memcpy(out, image, static_cast<size_t>(height * row_bytes));
    return;
  }
  // Columns [begin, end) of the unmirrored result lie within the image.
  const int64_t begin = std::clamp<int64_t>(-placement.dx, 0, width);
  const int64_t end = std::clamp<int64_t>(width - placement.dx, begin, width);
  const int64_t out_begin = placement.flip ? width - end : begin;
  for (int64_t y = 0; y < height; ++y, out += row_bytes) {
    const int64_t from = y + placement.dy;
    if (from < 0 || from >= height || begin == end) {
      std::memset(out, 0, static_cast<size_t>(row_bytes));
      continue;
    }
    const int64_t out_end = out_begin + (end - begin);
    std::memset(out, 0, static_cast<size_t>(out_begin * channels));
    CopyRow(image + from * row_bytes + (begin + placement.dx) * channels, end - begin, channels,
            placement.flip, out + out_begin * channels);
    std::memset(out + out_end * channels, 0, static_cast<size_t>((width - out_end) * channels));
  }
}

Normalizer::Normalizer(const DatasetInfo& info) {
  for (size_t c = 0; c < info.mean.size(); ++c) {
    scale_.push_back(1.0f / (255.0f * info.standard_deviation[c]));
    shift_.push_back(-info.mean[c] / info.standard_deviation[c]);
  }
}

void Normalizer::Apply(absl::Span<const uint8_t> pixels, float* out) const {
  const auto channels = static_cast<int64_t>(scale_.size());
  kernels::CpuKernels().normalize(static_cast<int64_t>(pixels.size()) / channels, channels,
                                  pixels.data(), scale_.data(), shift_.data(), out);
}

}  // namespace muster::data
