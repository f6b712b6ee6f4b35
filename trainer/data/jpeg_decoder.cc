#include "trainer/data/jpeg_decoder.h"

// libjpeg's header needs size_t and FILE.
#include <csetjmp>
#include <cstddef>
#include <cstdio>
//
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::data {
namespace {

// A progressive image has about ten scans. Each further scan costs time in proportion to the
// pixels, and a small file can contain thousands.
constexpr int kMaxScans = 500;

// Chroma upsampling reads one sample on each side, so that pixels next to the edge of a cropped row
// would differ from those of the whole image.
constexpr int64_t kColumnMargin = 2;

// Whether the pixels are correct in spite of the warning; other warnings mean lost data.
bool IsHarmless(int warning) {
  switch (warning) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_ICC:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
      return true;
    default:
      return false;
  }
}

// A rectangle of the image at the decoded scale.
struct Window {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
};

// Sets the pixel range from floor(begin) to ceil(begin + length), limited to `limit`.
void Cover(double begin, double length, int64_t limit, int64_t& first, int64_t& count) {
  first = std::clamp<int64_t>(static_cast<int64_t>(std::floor(begin)), 0, limit - 1);
  const auto end = static_cast<int64_t>(std::ceil(begin + length));
  count = std::clamp<int64_t>(end, first + 1, limit) - first;
}

// The largest reduction that leaves enough pixels in the wanted region.
int64_t ScaleDenominator(const Region& wanted, ImageSize at_least) {
  int64_t denominator = 8;
  while (denominator > 1 && (wanted.height / denominator < at_least.height ||
                             wanted.width / denominator < at_least.width)) {
    denominator /= 2;
  }
  return denominator;
}

// Converts a row of inverted CMYK to RGB in place: each colour is what its ink and black transmit.
void CmykToRgb(uint8_t* row, int64_t width) {
  for (int64_t x = 0; x < width; ++x) {
    const int black = row[4 * x + 3];
    for (int64_t channel = 0; channel < 3; ++channel) {
      const int absorbed = (255 - row[4 * x + channel]) * black;
      row[3 * x + channel] = static_cast<uint8_t>(black - (absorbed + 127) / 255);
    }
  }
}

}  // namespace

// libjpeg reports errors by a callback that must not return: it jumps back into Attempt, over the
// stack frames of libjpeg and of the steps below. The steps therefore have no local objects with
// destructors; their data are members of State.
struct JpegDecoder::State {
  jpeg_decompress_struct codec;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf failed;
  char message[JMSG_LENGTH_MAX];

  absl::Span<const uint8_t> jpeg;
  bool created = false;
  bool header_read = false;  // and nothing else yet
  int64_t denominator = 1;
  Window window;  // wanted pixels
  // Columns decoded into `rows`: the window's, and further ones on both sides of it.
  int64_t decoded_left = 0;
  int64_t decoded_width = 0;
  std::vector<uint8_t> rows;

  int64_t row_bytes() const { return decoded_width * codec.out_color_components; }

  static State& Of(j_common_ptr codec) { return *static_cast<State*>(codec->client_data); }
  [[noreturn]] static void OnError(j_common_ptr codec);
  static void OnMessage(j_common_ptr codec, int level);
  static void OnProgress(j_common_ptr codec);

  static void Create(State& state);
  static void ReadHeader(State& state);
  static void Start(State& state);
  static void ReadRows(State& state);

  // Returns false if the step failed: `message` has the reason, and the codec can decode another
  // image.
  bool Attempt(void (*step)(State&));
  absl::Status Failure() const;
  absl::Status Open();
};

void JpegDecoder::State::OnError(j_common_ptr codec) {
  State& state = Of(codec);
  codec->err->format_message(codec, state.message);
  std::longjmp(state.failed, 1);
}

void JpegDecoder::State::OnMessage(j_common_ptr codec, int level) {
  if (level < 0 && !IsHarmless(codec->err->msg_code)) OnError(codec);
}

void JpegDecoder::State::OnProgress(j_common_ptr codec) {
  State& state = Of(codec);
  if (state.codec.input_scan_number <= kMaxScans) return;
  std::snprintf(state.message, sizeof(state.message), "image has more than %d scans", kMaxScans);
  std::longjmp(state.failed, 1);
}

bool JpegDecoder::State::Attempt(void (*step)(State&)) {
  if (setjmp(failed) == 0) {
    step(*this);
    return true;
  }
  jpeg_abort_decompress(&codec);
  header_read = false;
  return false;
}

void JpegDecoder::State::Create(State& state) {
  jpeg_create_decompress(&state.codec);  // does not change err and client_data
  state.codec.progress = &state.progress;
}

void JpegDecoder::State::ReadHeader(State& state) {
  jpeg_abort_decompress(&state.codec);
  jpeg_mem_src(&state.codec, state.jpeg.data(), state.jpeg.size());
  jpeg_read_header(&state.codec, TRUE);
}

void JpegDecoder::State::Start(State& state) {
  jpeg_decompress_struct& codec = state.codec;
  codec.scale_num = 1;
  codec.scale_denom = static_cast<unsigned>(state.denominator);
  const bool inks = codec.jpeg_color_space == JCS_CMYK || codec.jpeg_color_space == JCS_YCCK;
  codec.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  codec.dct_method = JDCT_ISLOW;
  codec.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&codec);

  const Window& window = state.window;
  const int64_t left = std::max<int64_t>(0, window.left - kColumnMargin);
  const int64_t right =
      std::min<int64_t>(codec.output_width, window.left + window.width + kColumnMargin);
  auto decoded_left = static_cast<JDIMENSION>(left);
  auto decoded_width = static_cast<JDIMENSION>(right - left);
  // Moves the left edge outwards to the next block.
  jpeg_crop_scanline(&codec, &decoded_left, &decoded_width);
  state.decoded_left = decoded_left;
  state.decoded_width = decoded_width;
}

void JpegDecoder::State::ReadRows(State& state) {
  jpeg_decompress_struct& codec = state.codec;
  const Window& window = state.window;
  if (window.top > 0) jpeg_skip_scanlines(&codec, static_cast<JDIMENSION>(window.top));
  const int64_t row_bytes = state.row_bytes();
  for (int64_t y = 0; y < window.height; ++y) {
    JSAMPROW row = state.rows.data() + y * row_bytes;
    jpeg_read_scanlines(&codec, &row, 1);
    if (codec.out_color_space == JCS_CMYK) CmykToRgb(row, state.decoded_width);
  }
  jpeg_abort_decompress(&codec);  // skips the data after the last wanted row
}

absl::Status JpegDecoder::State::Failure() const {
  if (errors.msg_code == JERR_OUT_OF_MEMORY) return absl::ResourceExhaustedError(message);
  return absl::DataLossError(message);
}

absl::Status JpegDecoder::State::Open() {
  header_read = Attempt(ReadHeader);
  if (!header_read) return Failure();
  if (int64_t{codec.image_height} * codec.image_width > kMaxJpegPixels) {
    header_read = false;
    return absl::DataLossError(absl::StrCat("image has ", codec.image_width, "x",
                                            codec.image_height, " pixels, more than ",
                                            kMaxJpegPixels));
  }
  return absl::OkStatus();
}

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {
  state_->codec.err = jpeg_std_error(&state_->errors);
  state_->codec.client_data = state_.get();
  state_->errors.error_exit = State::OnError;
  state_->errors.emit_message = State::OnMessage;
  state_->progress.progress_monitor = State::OnProgress;
  state_->created = state_->Attempt(State::Create);
}

JpegDecoder::~JpegDecoder() { jpeg_destroy_decompress(&state_->codec); }

absl::StatusOr<ImageSize> JpegDecoder::Open(absl::Span<const uint8_t> jpeg) {
  if (!state_->created) return state_->Failure();
  state_->jpeg = jpeg;
  RETURN_IF_ERROR(state_->Open());
  return ImageSize{state_->codec.image_height, state_->codec.image_width};
}

absl::StatusOr<DecodedRegion> JpegDecoder::Decode(const Region& wanted, ImageSize at_least) {
  State& state = *state_;
  if (!state.header_read) RETURN_IF_ERROR(state.Open());
  state.header_read = false;

  const int64_t denominator = ScaleDenominator(wanted, at_least);
  const Region scaled = {wanted.top / denominator, wanted.left / denominator,
                         wanted.height / denominator, wanted.width / denominator};
  const int64_t height = (int64_t{state.codec.image_height} + denominator - 1) / denominator;
  const int64_t width = (int64_t{state.codec.image_width} + denominator - 1) / denominator;
  state.denominator = denominator;
  Window& window = state.window;
  Cover(scaled.top, scaled.height, height, window.top, window.height);
  Cover(scaled.left, scaled.width, width, window.left, window.width);

  if (!state.Attempt(State::Start)) return state.Failure();
  const auto bytes = static_cast<size_t>(window.height * state.row_bytes());
  if (state.rows.size() < bytes) state.rows.resize(bytes);
  if (!state.Attempt(State::ReadRows)) return state.Failure();

  DecodedRegion decoded;
  decoded.view = {window.height, window.width, 3, state.row_bytes(),
                  state.rows.data() + 3 * (window.left - state.decoded_left)};
  decoded.region = {scaled.top - static_cast<double>(window.top),
                    scaled.left - static_cast<double>(window.left), scaled.height, scaled.width};
  return decoded;
}

}  // namespace muster::data
