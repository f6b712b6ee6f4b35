// From an image as it is stored to rows of a batch: decoded, cropped, resized, mirrored.
#ifndef MUSTER_TRAINER_DATA_TRANSFORM_H_
#define MUSTER_TRAINER_DATA_TRANSFORM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/image/render_image.h"
#include "kernels/image_rows.h"
#include "trainer/data/augment.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Which part of the image is taken: random_resized_crop's, or else the central one of the result's
// shape. Where it has not the result's size it is resized bilinearly. Padding, crop and flip
// follow.
struct TransformOptions {
  // Of the result; zero: the data set's own.
  ImageSize size;
  // The central part's share of the largest there is, above 0 and up to 1. The image is thought
  // resized to size / center_crop along its shorter side, and the middle taken out, as
  // torchvision's Resize and CenterCrop do.
  double center_crop = 1;
  // Images are decoded at a lower resolution where that leaves so many pixels for one of the
  // result, in both directions.
  double detail = 1;
  AugmentOptions augment;
};

// Reads and transforms the images of one data set, which outlives it. For one thread. Memory grows
// with the largest image seen and stays.
class ImageTransform {
 public:
  // `options.size` is given.
  ImageTransform(const ImageDataset* dataset, const TransformOptions& options);

  // Views 0 to `views` - 1 of a sample one after another: each height * width * channels bytes,
  // HWC, finished but for being normalised and erased, as `rows` then say, one for each view, whose
  // images are counted from `out`. The reader's errors, which name the file.
  absl::Status Apply(uint64_t epoch, uint32_t sample, uint32_t views, uint8_t* out,
                     kernels::ImageRow* rows);

  // The same views as rows that leave everything to be done, of an image that is stored decoded;
  // they count from its first byte.
  absl::Status Describe(uint64_t epoch, uint32_t sample, uint32_t views, kernels::ImageRow* rows);

 private:
  // Decodes what the views need of the opened image; sets parts_ and wanted_.
  absl::StatusOr<DecodedRegion> Decode(ImageSize stored, uint64_t epoch, uint32_t sample,
                                       uint32_t views);
  Region PartOf(ImageSize stored, const SampleView& of) const;
  Rectangle Erasure(const SampleView& of) const;
  // View `of` of the decoded image, from whose first byte it counts.
  kernels::ImageRow RowOf(const DecodedRegion& decoded, const SampleView& of) const;

  const TransformOptions options_;
  const kernels::ImageRowsShape shape_;  // of one row
  const std::unique_ptr<ImageReader> reader_;
  // In the stored image's pixels:
  std::vector<Region> parts_;  // that become the views
  Region wanted_;              // that holds them all
  kernels::cpu::RenderScratch scratch_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_TRANSFORM_H_
