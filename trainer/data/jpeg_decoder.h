// Decodes parts of JPEG images, at full or reduced resolution, with libjpeg-turbo.
#ifndef MUSTER_TRAINER_DATA_JPEG_DECODER_H_
#define MUSTER_TRAINER_DATA_JPEG_DECODER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Images with more pixels are refused before anything is allocated for them.
inline constexpr int64_t kMaxJpegPixels = int64_t{1} << 27;

// Baseline and progressive, 8 bits; always into RGB: grey is repeated, CMYK and YCCK are converted
// as Adobe stores them (inverted). Orientation and colour profiles are ignored. The pixels are
// those of the Python library Pillow, down to the bit at full resolution.
//
// Buffers are kept from image to image; libjpeg itself allocates its working memory per image. For
// one thread.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Reads the header. The bytes stay until the next Open. DATA_LOSS: no JPEG, damaged, not
  // supported by libjpeg, or more than kMaxJpegPixels.
  absl::StatusOr<ImageSize> Open(absl::Span<const uint8_t> jpeg);

  // See ImageReader::Decode; after a successful Open. Reduced resolutions are 1/2, 1/4 and 1/8, by
  // inverse transforms of fewer coefficients. DATA_LOSS: the image is truncated or damaged at or
  // before the last line that is wanted; stray bytes
  // between its segments are no damage. RESOURCE_EXHAUSTED: no memory.
  absl::StatusOr<DecodedRegion> Decode(const Region& wanted, ImageSize at_least);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_JPEG_DECODER_H_
