// What chance decides about an image in training: crops, flips and erased rectangles.
//
// Every draw is a function of (seed, epoch, sample, view) alone, whichever rank, thread or batch
// asks.
#ifndef MUSTER_TRAINER_DATA_AUGMENT_H_
#define MUSTER_TRAINER_DATA_AUGMENT_H_

#include <cstdint>
#include <optional>

#include "trainer/data/image_dataset.h"

namespace muster::data {

// A part with an area of min_scale to max_scale of the image's and a width to height ratio of
// min_ratio to max_ratio, the area uniform, the ratio's logarithm uniform: the crop of Szegedy et
// al., "Going deeper with convolutions" (2014), as torchvision's RandomResizedCrop draws it.
struct RandomResizedCropOptions {
  double min_scale = 0.08;
  double max_scale = 1;
  double min_ratio = 3.0 / 4;
  double max_ratio = 4.0 / 3;
};

// Zhong et al., "Random erasing data augmentation" (2017), as torchvision's RandomErasing draws it;
// the ratio is height to width.
struct RandomErasingOptions {
  double probability = 0.5;
  double min_scale = 0.02;
  double max_scale = 0.33;
  double min_ratio = 0.3;
  double max_ratio = 3.3;
};

struct AugmentOptions {
  // Pixels of value 0 around the image before a random crop back to its size.
  uint32_t crop_padding = 0;
  bool flip = false;  // left to right, with probability one half
  uint64_t seed = 0;
  std::optional<RandomResizedCropOptions> random_resized_crop;
  std::optional<RandomErasingOptions> random_erasing;
};

// What a draw is for.
struct SampleView {
  uint64_t epoch = 0;
  uint32_t sample = 0;
  uint32_t view = 0;
};

// Where an image is put: out(y, x) = in(y + dy, x + dx), zero outside, then mirrored.
struct Placement {
  int32_t dy = 0;
  int32_t dx = 0;
  bool flip = false;
};

// In whole pixels. Empty where its height or width is 0.
struct Rectangle {
  int32_t top = 0;
  int32_t left = 0;
  int32_t height = 0;
  int32_t width = 0;
};

// By crop_padding and flip.
Placement DrawPlacement(const AugmentOptions& options, const SampleView& of);

// The part of an image of size `stored`. Ten tries; then the largest central part whose ratio is
// allowed.
Rectangle DrawCrop(const RandomResizedCropOptions& options, uint64_t seed, ImageSize stored,
                   const SampleView& of);

// The part of an image of size `size` to erase; empty for none. Ten tries; then none.
Rectangle DrawErasure(const RandomErasingOptions& options, uint64_t seed, ImageSize size,
                      const SampleView& of);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_AUGMENT_H_
