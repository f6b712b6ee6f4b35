// For tests: pictures of any size without files, each a plane of brightness, so that what a
// transform should make of it can be told from the coordinates alone.
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
  // Image i has size sizes[i % sizes.size()] and label i % 10. With sizes of one kind info() tells
  // it. Readers halve the resolution wherever they may if `reduces`.
  FakeDataset(size_t samples, std::vector<ImageSize> sizes, int64_t channels, bool reduces = false);

  // Readers fail on this sample: DATA_LOSS, "picture I is damaged".
  void set_damaged(size_t sample) { damaged_ = sample; }

  ImageSize stored(size_t i) const { return sizes_[i % sizes_.size()]; }
  // At any point of image i, (0.5, 0.5) being the first pixel's centre; between 0 and 255.
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
