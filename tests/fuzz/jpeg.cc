// JPEG images.
#include <cstdint>
#include <limits>

#include "absl/status/statusor.h"
#include "tests/fuzz/check.h"
#include "trainer/data/jpeg_decoder.h"

namespace {

// Larger images are only opened: they need more memory and time than an input may.
constexpr int64_t kDecodedPixels = 1 << 20;

// The sum of all pixels, so that each is read.
uint64_t Sum(const muster::data::ImageView& view) {
  uint64_t sum = 0;
  for (int64_t y = 0; y < view.height; ++y) {
    for (int64_t i = 0; i < view.width * view.channels; ++i)
      sum += view.pixels[y * view.row_bytes + i];
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using muster::data::ImageSize;
  muster::data::JpegDecoder decoder;
  const absl::StatusOr<ImageSize> image = decoder.Open({data, size});
  if (!image.ok()) return 0;
  fuzz::Check(image->height > 0 && image->width > 0, "an image has pixels");
  if (image->height * image->width > kDecodedPixels) return 0;
  const auto height = static_cast<double>(image->height);
  const auto width = static_cast<double>(image->width);
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  for (const ImageSize at_least : {ImageSize{kAll, kAll}, ImageSize{1, 1}}) {
    for (const muster::data::Region& wanted :
         {muster::data::Region{0, 0, height, width},
          muster::data::Region{height / 2, width / 2, height / 2, width / 2}}) {
      const auto first = decoder.Decode(wanted, at_least);
      if (!first.ok()) continue;
      const uint64_t sum = Sum(first->view);
      const auto second = decoder.Decode(wanted, at_least);
      fuzz::Check(second.ok() && Sum(second->view) == sum, "an image is decoded the same again");
    }
  }
  return 0;
}
