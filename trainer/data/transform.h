// Transforms stored images to the images of a batch: decode, crop, resize, flip.
#ifndef MUSTER_TRAINER_DATA_TRANSFORM_H_
#define MUSTER_TRAINER_DATA_TRANSFORM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/image/render_image.h"
#include "kernels/image_transform.h"
#include "trainer/data/augment.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// The crop is that of random_resized_crop, or the central crop with the result's aspect ratio. It
// is resized bilinearly if it does not have the result's size. Padding, crop and flip follow.
struct TransformOptions {
  // Size of the result; zero: the dataset's image size.
  ImageSize size;
  // Size of the central crop relative to the largest possible one, in (0, 1]. Equivalent to
  // torchvision's Resize of the shorter side to size / center_crop, followed by CenterCrop.
  double center_crop = 1;
  // Images are decoded at a lower resolution if that leaves at least this many pixels per pixel of
  // the result, in both directions.
  double detail = 1;
  AugmentOptions augment;
};

// Reads and transforms the images of one dataset, which must outlive it. Not thread-safe. Its
// memory grows with the largest image seen and is not released.
class ImageTransform {
 public:
  // `options.size` must be set.
  ImageTransform(const ImageDataset* dataset, const TransformOptions& options);

  // Writes views 0 to `views` - 1 of a sample, each height * width * channels bytes, HWC, finished
  // except for normalisation and erasing. Sets one element of `transforms` per view, which
  // describes these two; its offset counts from `out`. Errors are the reader's, which name the
  // file.
  absl::Status Apply(uint64_t epoch, uint32_t sample, uint32_t views, uint8_t* out,
                     kernels::ImageTransformParams* transforms);

  // Sets `transforms` for the same views without applying any operation, for an image that is
  // stored decoded; offsets count from its first byte.
  absl::Status Describe(uint64_t epoch, uint32_t sample, uint32_t views,
                        kernels::ImageTransformParams* transforms);

 private:
  // Decodes the part of the opened image that the views need; sets parts_ and wanted_.
  absl::StatusOr<DecodedRegion> Decode(ImageSize stored, uint64_t epoch, uint32_t sample,
                                       uint32_t views);
  Region PartOf(ImageSize stored, const SampleView& of) const;
  Rectangle Erasure(const SampleView& of) const;
  // Describes view `of` of the decoded image; the offset counts from its first byte.
  kernels::ImageTransformParams ParamsOf(const DecodedRegion& decoded, const SampleView& of) const;

  const TransformOptions options_;
  const kernels::ImageBatchShape shape_;  // shape of one image
  const std::unique_ptr<ImageReader> reader_;
  std::vector<Region> parts_;  // crop of each view, in pixels of the stored image
  Region wanted_;              // smallest region that contains all crops
  kernels::cpu::RenderScratch scratch_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_TRANSFORM_H_
