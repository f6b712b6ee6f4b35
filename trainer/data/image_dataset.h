// Interface of datasets: labelled images, either decoded in memory or read one at a time.
#ifndef MUSTER_TRAINER_DATA_IMAGE_DATASET_H_
#define MUSTER_TRAINER_DATA_IMAGE_DATASET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace muster::data {

enum class Split { kTrain, kTest };

struct DatasetInfo {
  std::string name;
  // Size of every image; zero if the sizes differ.
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t classes = 0;
  // By channel, of pixels scaled to [0, 1].
  std::vector<float> mean;
  std::vector<float> standard_deviation;
};

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};

// Pixels as uint8, HWC; a row has width * channels bytes, and row_bytes is the distance between the
// starts of adjacent rows.
struct ImageView {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t row_bytes = 0;
  const uint8_t* pixels = nullptr;
};

// A rectangle in pixels. Pixel (y, x) covers [y, y+1) and [x, x+1), so that {0, 0, height, width}
// is the whole image.
struct Region {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

struct DecodedRegion {
  ImageView view;
  // The wanted region within the view, in the view's pixels.
  Region region;
};

// Reads the images of one dataset one at a time. Not thread-safe; the dataset must outlive it.
class ImageReader {
 public:
  virtual ~ImageReader() = default;

  // Opens image `sample` < size() and returns its stored size. Errors name the file: NOT_FOUND and
  // others from errno, and DATA_LOSS if it is not a valid image.
  virtual absl::StatusOr<ImageSize> Open(size_t sample) = 0;

  // Decodes at least the region `wanted` of the opened image, in stored pixels, which must be
  // nonempty and within the image. The resolution may be reduced as long as the wanted region keeps
  // `at_least` pixels in both directions; {INT64_MAX, INT64_MAX} requests full resolution. Only the
  // view's pixels are checked: damage elsewhere in the file may go undetected. May be called any
  // number of times after Open, with identical results; the view is valid until the reader's next
  // call. DATA_LOSS names the file.
  virtual absl::StatusOr<DecodedRegion> Decode(const Region& wanted, ImageSize at_least) = 0;
};

// One split of a dataset. Immutable; safe to read from any thread.
class ImageDataset {
 public:
  virtual ~ImageDataset() = default;

  virtual const DatasetInfo& info() const = 0;
  virtual size_t size() const = 0;
  virtual int32_t label(size_t i) const = 0;

  // Returns a hex digest of a cheap check of the data: usually different for different data, and
  // equal on all machines.
  virtual std::string Digest() const = 0;

  // Pixels of image i, height * width * channels bytes, followed by those of the next images; null
  // if the images are not stored decoded.
  virtual const uint8_t* image(size_t i) const = 0;

  virtual std::unique_ptr<ImageReader> NewReader() const = 0;
};

// Images of one size and their labels, as arrays in memory that the derived class owns.
class ArrayDataset : public ImageDataset {
 public:
  const DatasetInfo& info() const override { return info_; }
  size_t size() const override { return labels_.size(); }
  int32_t label(size_t i) const override { return labels_[i]; }
  const uint8_t* image(size_t i) const override { return pixels_.data() + i * image_bytes_; }
  std::unique_ptr<ImageReader> NewReader() const override;

  // Covers the number of images, every label, and a sample of the images.
  std::string Digest() const override;

 protected:
  // `pixels` and `labels` must outlive the object and hold the same number of images.
  ArrayDataset(DatasetInfo info, absl::Span<const uint8_t> pixels,
               absl::Span<const uint8_t> labels);

 private:
  const DatasetInfo info_;
  const absl::Span<const uint8_t> pixels_;
  const absl::Span<const uint8_t> labels_;
  const size_t image_bytes_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_IMAGE_DATASET_H_
