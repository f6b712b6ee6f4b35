// For tests: images of any size without files, each a plane of brightness, so that the result of a
// transform can be computed from the coordinates alone.
#ifndef MUSTER_TRAINER_DATA_FAKE_DATASET_H_
#define MUSTER_TRAINER_DATA_FAKE_DATASET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/image_dataset.h"

namespace muster::data {

class FakeDataset : public ImageDataset {
 public:
  // Image i has size sizes[i % sizes.size()] and label i % 10. If all sizes are equal, info()
  // contains the size. With `reduces`, readers halve the resolution as often as allowed.
  FakeDataset(size_t samples, std::vector<ImageSize> sizes, int64_t channels, bool reduces = false);

  // Makes readers fail on this sample: DATA_LOSS, "image I is damaged".
  void set_damaged(size_t sample) { damaged_ = sample; }

  ImageSize stored(size_t i) const { return sizes_[i % sizes_.size()]; }
  // Brightness in [0, 255] at a point of image i; (0.5, 0.5) is the first pixel's centre.
  double Brightness(size_t i, double y, double x, int64_t channel) const;

  const DatasetInfo& info() const override { return info_; }
  size_t size() const override { return samples_; }
  int32_t label(size_t i) const override { return static_cast<int32_t>(i % 10); }
  std::string Digest() const override { return "fake"; }
  const uint8_t* image(size_t) const override { return nullptr; }
  std::unique_ptr<ImageReader> NewReader() const override;

 private:
  class Reader;

  const size_t samples_;
  const std::vector<ImageSize> sizes_;
  const bool reduces_;
  std::optional<size_t> damaged_;
  DatasetInfo info_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_FAKE_DATASET_H_
