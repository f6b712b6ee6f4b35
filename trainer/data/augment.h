// Random augmentation of training images: crops, flips and erased rectangles.
//
// Every draw is a function of (seed, epoch, sample, view) only, independent of rank, thread and
// batch.
#ifndef MUSTER_TRAINER_DATA_AUGMENT_H_
#define MUSTER_TRAINER_DATA_AUGMENT_H_

#include <cstdint>
#include <optional>

#include "trainer/data/image_dataset.h"

namespace muster::data {

// A crop whose area is min_scale to max_scale of the image's and whose width to height ratio is
// min_ratio to max_ratio; the area and the ratio's logarithm are uniform. This is the crop of
// Szegedy et al., "Going deeper with convolutions" (2014), as in torchvision's RandomResizedCrop.
struct RandomResizedCropOptions {
  double min_scale = 0.08;
  double max_scale = 1;
  double min_ratio = 3.0 / 4;
  double max_ratio = 4.0 / 3;
};

// Zhong et al., "Random erasing data augmentation" (2017), as in torchvision's RandomErasing; the
// ratio is height to width.
struct RandomErasingOptions {
  double probability = 0.5;
  double min_scale = 0.02;
  double max_scale = 0.33;
  double min_ratio = 0.3;
  double max_ratio = 3.3;
};

struct AugmentOptions {
  // Width of the zero padding around the image before a random crop to the original size.
  uint32_t crop_padding = 0;
  bool flip = false;  // left to right, with probability one half
  uint64_t seed = 0;
  std::optional<RandomResizedCropOptions> random_resized_crop;
  std::optional<RandomErasingOptions> random_erasing;
};

// Identifies the view of a sample for which a draw is made.
struct SampleView {
  uint64_t epoch = 0;
  uint32_t sample = 0;
  uint32_t view = 0;
};

// Placement of an image: out(y, x) = in(y + dy, x + dx), zero outside, then mirrored if `flip`.
struct Placement {
  int32_t dy = 0;
  int32_t dx = 0;
  bool flip = false;
};

// In whole pixels. Empty if its height or width is 0.
struct Rectangle {
  int32_t top = 0;
  int32_t left = 0;
  int32_t height = 0;
  int32_t width = 0;
};

// Draws the placement for crop_padding and flip.
Placement DrawPlacement(const AugmentOptions& options, const SampleView& of);

// Draws a crop of an image of size `stored`. After ten failed tries, returns the largest central
// crop with an allowed ratio.
Rectangle DrawCrop(const RandomResizedCropOptions& options, uint64_t seed, ImageSize stored,
                   const SampleView& of);

// Draws the rectangle to erase in an image of size `size`; empty for none or after ten failed
// tries.
Rectangle DrawErasure(const RandomErasingOptions& options, uint64_t seed, ImageSize size,
                      const SampleView& of);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_AUGMENT_H_
