// Decodes regions of JPEG images, at full or reduced resolution, with libjpeg-turbo.
#ifndef MUSTER_TRAINER_DATA_JPEG_DECODER_H_
#define MUSTER_TRAINER_DATA_JPEG_DECODER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// Larger images are rejected before memory is allocated for them.
inline constexpr int64_t kMaxJpegPixels = int64_t{1} << 27;

// Decodes baseline and progressive JPEGs with 8 bits, always to RGB: grey is replicated, CMYK and
// YCCK are converted as stored by Adobe (inverted). Orientation and colour profiles are ignored. At
// full resolution the pixels equal those of the Python library Pillow bitwise.
//
// Buffers are reused for all images; libjpeg allocates its working memory per image. Not
// thread-safe.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Reads the header. The bytes must stay valid until the next Open. DATA_LOSS: not a JPEG,
  // damaged, not supported by libjpeg, or more than kMaxJpegPixels.
  absl::StatusOr<ImageSize> Open(absl::Span<const uint8_t> jpeg);

  // See ImageReader::Decode; requires a successful Open. Reduced resolutions are 1/2, 1/4 and 1/8,
  // by inverse transforms of fewer coefficients. DATA_LOSS: the image is truncated or damaged at or
  // before the last wanted row; extraneous bytes between segments are accepted. RESOURCE_EXHAUSTED:
  // no memory.
  absl::StatusOr<DecodedRegion> Decode(const Region& wanted, ImageSize at_least);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_JPEG_DECODER_H_
