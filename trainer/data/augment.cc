#include "trainer/data/augment.h"

#include <algorithm>
#include <cmath>

#include "kernels/philox.h"
#include "trainer/data/purpose.h"

namespace muster::data {
namespace {

constexpr uint32_t kTries = 10;

// Returns block `block` of the random numbers for one view and purpose.
kernels::PhiloxCounter Draw(uint64_t seed, uint64_t purpose, const SampleView& of, uint32_t block) {
  return kernels::Philox4x32(
      {of.sample, block, static_cast<uint32_t>(of.epoch), static_cast<uint32_t>(of.epoch >> 32)},
      kernels::DerivePhiloxKey(seed, purpose + of.view));
}

double UniformBetween(uint32_t word, double low, double high) {
  return low + (high - low) * (word * 0x1p-32);
}

double LogUniformBetween(uint32_t word, double low, double high) {
  return std::exp(UniformBetween(word, std::log(low), std::log(high)));
}

// Rounds half to even, as Python does.
int64_t Round(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

// A random position within an image that is large enough.
Rectangle PlaceWithin(ImageSize image, int64_t height, int64_t width, uint32_t row_word,
                      uint32_t column_word) {
  Rectangle rectangle;
  rectangle.top = static_cast<int32_t>(
      kernels::UniformBelow(row_word, static_cast<uint32_t>(image.height - height + 1)));
  rectangle.left = static_cast<int32_t>(
      kernels::UniformBelow(column_word, static_cast<uint32_t>(image.width - width + 1)));
  rectangle.height = static_cast<int32_t>(height);
  rectangle.width = static_cast<int32_t>(width);
  return rectangle;
}

// The largest central crop with an allowed width to height ratio.
Rectangle CentralCrop(const RandomResizedCropOptions& options, ImageSize stored) {
  int64_t height = stored.height;
  int64_t width = stored.width;
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  if (ratio < options.min_ratio) {
    height = Round(static_cast<double>(width) / options.min_ratio);
  } else if (ratio > options.max_ratio) {
    width = Round(static_cast<double>(height) * options.max_ratio);
  }
  height = std::clamp<int64_t>(height, 1, stored.height);
  width = std::clamp<int64_t>(width, 1, stored.width);
  return {static_cast<int32_t>((stored.height - height) / 2),
          static_cast<int32_t>((stored.width - width) / 2), static_cast<int32_t>(height),
          static_cast<int32_t>(width)};
}

}  // namespace

Placement DrawPlacement(const AugmentOptions& options, const SampleView& of) {
  Placement placement;
  if (options.crop_padding == 0 && !options.flip) return placement;
  const kernels::PhiloxCounter words = Draw(options.seed, kAugmentPurpose, of, 0);
  const auto padding = static_cast<int32_t>(options.crop_padding);
  const uint32_t positions = 2 * options.crop_padding + 1;
  placement.dy = static_cast<int32_t>(kernels::UniformBelow(words[0], positions)) - padding;
  placement.dx = static_cast<int32_t>(kernels::UniformBelow(words[1], positions)) - padding;
  placement.flip = options.flip && (words[2] & 1) != 0;
  return placement;
}

Rectangle DrawCrop(const RandomResizedCropOptions& options, uint64_t seed, ImageSize stored,
                   const SampleView& of) {
  const double area = static_cast<double>(stored.height) * static_cast<double>(stored.width);
  for (uint32_t i = 0; i < kTries; ++i) {
    const kernels::PhiloxCounter words = Draw(seed, kCropPurpose, of, i);
    const double target = area * UniformBetween(words[0], options.min_scale, options.max_scale);
    const double ratio = LogUniformBetween(words[1], options.min_ratio, options.max_ratio);
    const int64_t width = Round(std::sqrt(target * ratio));
    const int64_t height = Round(std::sqrt(target / ratio));
    if (width > 0 && width <= stored.width && height > 0 && height <= stored.height) {
      return PlaceWithin(stored, height, width, words[2], words[3]);
    }
  }
  return CentralCrop(options, stored);
}

Rectangle DrawErasure(const RandomErasingOptions& options, uint64_t seed, ImageSize size,
                      const SampleView& of) {
  if (UniformBetween(Draw(seed, kErasePurpose, of, 0)[0], 0, 1) >= options.probability) return {};
  const double area = static_cast<double>(size.height) * static_cast<double>(size.width);
  for (uint32_t i = 1; i <= kTries; ++i) {
    const kernels::PhiloxCounter words = Draw(seed, kErasePurpose, of, i);
    const double target = area * UniformBetween(words[0], options.min_scale, options.max_scale);
    const double ratio = LogUniformBetween(words[1], options.min_ratio, options.max_ratio);
    const int64_t height = Round(std::sqrt(target * ratio));
    const int64_t width = Round(std::sqrt(target / ratio));
    if (height < size.height && width < size.width) {
      return PlaceWithin(size, height, width, words[2], words[3]);
    }
  }
  return {};
}

}  // namespace muster::data
