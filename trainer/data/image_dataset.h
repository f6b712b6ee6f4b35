// What a data set is to the rest of the trainer: labelled images, already decoded in memory or read
// one by one.
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
  // Of every image; zero where they differ from image to image.
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t classes = 0;
  // Of pixels scaled to 0..1, by channel.
  std::vector<float> mean;
  std::vector<float> standard_deviation;
};

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};

// Pixels as uint8, HWC; a line is width * channels bytes and the next one begins row_bytes after
// it.
struct ImageView {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t row_bytes = 0;
  const uint8_t* pixels = nullptr;
};

// A rectangle in pixels. Pixel (y, x) covers y..y+1 and x..x+1, so that {0, 0, height, width} is
// the whole image.
struct Region {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

struct DecodedRegion {
  ImageView view;
  // Where the wanted region lies in the view, in the view's pixels.
  Region region;
};

// Reads the images of one data set, one after another. For one thread; the data set outlives it.
class ImageReader {
 public:
  virtual ~ImageReader() = default;

  // Turns to an image, `sample` < size(), and tells its size as it is stored. NOT_FOUND and so on
  // as errno says, and DATA_LOSS for what is no image, name the file.
  virtual absl::StatusOr<ImageSize> Open(size_t sample) = 0;

  // The pixels of a part of the opened image, `wanted` in its stored pixels, not empty and within
  // it. They may come at a lower resolution as long as the wanted region keeps `at_least` pixels
  // both ways; {INT64_MAX, INT64_MAX} is full resolution. Only what the view holds is looked at:
  // damage elsewhere in a file may go unseen. Any number of times after Open, each the same as the
  // first; the view is valid until the reader's next call. DATA_LOSS names the file.
  virtual absl::StatusOr<DecodedRegion> Decode(const Region& wanted, ImageSize at_least) = 0;
};

// One split. Immutable; safe to read from any thread.
class ImageDataset {
 public:
  virtual ~ImageDataset() = default;

  virtual const DatasetInfo& info() const = 0;
  virtual size_t size() const = 0;
  virtual int32_t label(size_t i) const = 0;

  // Hex, different for data that is not the same as far as a cheap look tells. Equal on every
  // machine.
  virtual std::string Digest() const = 0;

  // The pixels of image i, height * width * channels bytes, and those of the next images after
  // them; null where images are stored in another form.
  virtual const uint8_t* image(size_t i) const = 0;

  virtual std::unique_ptr<ImageReader> NewReader() const = 0;
};

// Images of one size and their labels as arrays in memory, which the derived class owns.
class ArrayDataset : public ImageDataset {
 public:
  const DatasetInfo& info() const override { return info_; }
  size_t size() const override { return labels_.size(); }
  int32_t label(size_t i) const override { return labels_[i]; }
  const uint8_t* image(size_t i) const override { return pixels_.data() + i * image_bytes_; }
  std::unique_ptr<ImageReader> NewReader() const override;

  // Of the number of images, every label and some images spread over all.
  std::string Digest() const override;

 protected:
  // `pixels` and `labels` live as long as the object; as many images as labels.
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
