#include "trainer/data/image_dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"

namespace muster::data {
namespace {

class ArrayReader final : public ImageReader {
 public:
  explicit ArrayReader(const ArrayDataset* dataset) : dataset_(dataset) {}

  absl::StatusOr<ImageSize> Open(size_t sample) override {
    const DatasetInfo& info = dataset_->info();
    view_ = {info.height, info.width, info.channels, info.width * info.channels,
             dataset_->image(sample)};
    return ImageSize{info.height, info.width};
  }

  absl::StatusOr<DecodedRegion> Decode(const Region& wanted, ImageSize) override {
    return DecodedRegion{view_, wanted};
  }

 private:
  const ArrayDataset* const dataset_;
  ImageView view_;
};

}  // namespace

ArrayDataset::ArrayDataset(DatasetInfo info, absl::Span<const uint8_t> pixels,
                           absl::Span<const uint8_t> labels)
    : info_(std::move(info)),
      pixels_(pixels),
      labels_(labels),
      image_bytes_(static_cast<size_t>(info_.height * info_.width * info_.channels)) {}

std::unique_ptr<ImageReader> ArrayDataset::NewReader() const {
  return std::make_unique<ArrayReader>(this);
}

std::string ArrayDataset::Digest() const {
  constexpr size_t kSampledImages = 256;
  Sha256 digest;
  digest.Update(absl::StrCat(size(), " images of ", image_bytes_, " bytes"));
  digest.Update(labels_.data(), labels_.size());
  const size_t stride = std::max<size_t>(1, size() / kSampledImages);
  for (size_t i = 0; i < size(); i += stride) digest.Update(image(i), image_bytes_);
  return digest.HexDigest();
}

}  // namespace muster::data
