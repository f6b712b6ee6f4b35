#include "trainer/data/fake_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace muster::data {

class FakeDataset::Reader : public ImageReader {
 public:
  explicit Reader(const FakeDataset* dataset) : dataset_(dataset) {}

  absl::StatusOr<ImageSize> Open(size_t sample) override {
    sample_ = sample;
    if (dataset_->damaged_ == sample) {
      return absl::DataLossError(absl::StrCat("image ", sample, " is damaged"));
    }
    return dataset_->stored(sample);
  }

  // The view contains the wanted region, extended to whole pixels.
  absl::StatusOr<DecodedRegion> Decode(const Region& wanted, ImageSize at_least) override {
    const bool halve = dataset_->reduces_ &&
                       wanted.height / 2 >= static_cast<double>(at_least.height) &&
                       wanted.width / 2 >= static_cast<double>(at_least.width);
    const int64_t step = halve ? 2 : 1;
    const auto scale = static_cast<double>(step);
    const auto top = static_cast<int64_t>(std::floor(wanted.top / scale));
    const auto left = static_cast<int64_t>(std::floor(wanted.left / scale));
    const auto bottom = static_cast<int64_t>(std::ceil((wanted.top + wanted.height) / scale));
    const auto right = static_cast<int64_t>(std::ceil((wanted.left + wanted.width) / scale));
    const int64_t channels = dataset_->info_.channels;
    pixels_.clear();
    for (int64_t y = top; y < bottom; ++y) {
      for (int64_t x = left; x < right; ++x) {
        for (int64_t c = 0; c < channels; ++c) {
          const double brightness =
              dataset_->Brightness(sample_, (static_cast<double>(y) + 0.5) * scale,
                                   (static_cast<double>(x) + 0.5) * scale, c);
          pixels_.push_back(static_cast<uint8_t>(std::lround(std::clamp(brightness, 0.0, 255.0))));
        }
      }
    }
    return DecodedRegion{
        {bottom - top, right - left, channels, (right - left) * channels, pixels_.data()},
        {wanted.top / scale - static_cast<double>(top),
         wanted.left / scale - static_cast<double>(left), wanted.height / scale,
         wanted.width / scale}};
  }

 private:
  const FakeDataset* const dataset_;
  size_t sample_ = 0;
  std::vector<uint8_t> pixels_;
};

FakeDataset::FakeDataset(size_t samples, std::vector<ImageSize> sizes, int64_t channels,
                         bool reduces)
    : samples_(samples), sizes_(std::move(sizes)), reduces_(reduces) {
  info_.name = "fake";
  if (sizes_.size() == 1) {
    info_.height = sizes_[0].height;
    info_.width = sizes_[0].width;
  }
  info_.channels = channels;
  info_.classes = 10;
  info_.mean.assign(channels, 0.5f);
  info_.standard_deviation.assign(channels, 0.25f);
}

double FakeDataset::Brightness(size_t i, double y, double x, int64_t channel) const {
  const ImageSize size = stored(i);
  const double down = y / static_cast<double>(size.height);
  const double across = x / static_cast<double>(size.width);
  // Each image and each channel has its own slope, from 10 to at most 10 + 160 + 80.
  const double tilt = 0.1 * static_cast<double>((i + 3 * static_cast<size_t>(channel)) % 10);
  return 10 + 160 * (tilt * down + (1 - tilt) * across) + 80 * down;
}

std::unique_ptr<ImageReader> FakeDataset::NewReader() const {
  return std::make_unique<Reader>(this);
}

}  // namespace muster::data
