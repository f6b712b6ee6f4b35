// Compares regions with whole images; tests/images/jpeg_test.py compares whole images with Pillow.
#include "trainer/data/jpeg_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/jpeg_testing.h"

namespace muster::data {
namespace {

using ::testing::HasSubstr;

constexpr ImageSize kFullResolution = {INT64_MAX, INT64_MAX};

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

struct DecodedImage {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;

  int at(int64_t y, int64_t x, int64_t c) const { return pixels[(y * width + x) * 3 + c]; }
};

int At(const ImageView& view, int64_t y, int64_t x, int64_t c) {
  return view.pixels[y * view.row_bytes + x * 3 + c];
}

DecodedImage Copy(const ImageView& view) {
  DecodedImage image{view.height, view.width, {}};
  for (int64_t y = 0; y < view.height; ++y) {
    const uint8_t* row = view.pixels + y * view.row_bytes;
    image.pixels.insert(image.pixels.end(), row, row + 3 * view.width);
  }
  return image;
}

// The whole image at 1/denominator.
DecodedImage DecodeWhole(JpegDecoder& decoder, const std::string& jpeg, int64_t denominator = 1) {
  const auto size = decoder.Open(Bytes(jpeg));
  EXPECT_TRUE(size.ok()) << size.status();
  const Region whole = {0, 0, static_cast<double>(size->height), static_cast<double>(size->width)};
  const ImageSize at_least = {size->height / denominator, size->width / denominator};
  const auto decoded = decoder.Decode(whole, at_least);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->view.height, (size->height + denominator - 1) / denominator);
  return Copy(decoded->view);
}

// Describes the first pixel that differs.
std::string Difference(const DecodedImage& whole, const ImageView& part, int64_t top,
                       int64_t left) {
  for (int64_t y = 0; y < part.height; ++y) {
    for (int64_t x = 0; x < part.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        if (At(part, y, x, c) != whole.at(top + y, left + x, c)) {
          return absl::StrCat("at ", y, ", ", x, ", channel ", c, ": ", At(part, y, x, c), ", not ",
                              whole.at(top + y, left + x, c));
        }
      }
    }
  }
  return "";
}

std::vector<JpegOptions> AllKinds() {
  std::vector<JpegOptions> kinds;
  for (const bool progressive : {false, true}) {
    for (const int restart_interval : {0, 3}) {
      JpegOptions options;
      options.height = 131;
      options.width = 173;
      options.progressive = progressive;
      options.restart_interval = restart_interval;
      for (const auto& [horizontal, vertical] :
           std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}}) {
        options.horizontal_sampling = horizontal;
        options.vertical_sampling = vertical;
        kinds.push_back(options);
      }
      options.components = 1;
      kinds.push_back(options);
      options.components = 4;
      kinds.push_back(options);
    }
  }
  return kinds;
}

std::string Describe(const JpegOptions& options) {
  return absl::StrCat(options.components, " components, sampling ", options.horizontal_sampling,
                      "x", options.vertical_sampling, options.progressive ? ", progressive" : "",
                      ", restarts ", options.restart_interval);
}

TEST(JpegDecoderTest, RegionMatchesTheWholeImage) {
  JpegDecoder decoder;
  std::mt19937 random(7);
  for (const JpegOptions& options : AllKinds()) {
    const std::string jpeg = EncodeJpeg(options);
    const DecodedImage whole = DecodeWhole(decoder, jpeg);
    for (int i = 0; i < 60; ++i) {
      const auto top = static_cast<int64_t>(random() % options.height);
      const auto left = static_cast<int64_t>(random() % options.width);
      const auto height = 1 + static_cast<int64_t>(random() % (options.height - top));
      const auto width = 1 + static_cast<int64_t>(random() % (options.width - left));
      const Region wanted = {static_cast<double>(top), static_cast<double>(left),
                             static_cast<double>(height), static_cast<double>(width)};
      ASSERT_TRUE(decoder.Open(Bytes(jpeg)).ok());
      const auto decoded = decoder.Decode(wanted, kFullResolution);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      ASSERT_EQ(decoded->view.height, height);
      ASSERT_EQ(decoded->view.width, width);
      ASSERT_EQ(decoded->region.top, 0);
      ASSERT_EQ(decoded->region.left, 0);
      ASSERT_EQ(Difference(whole, decoded->view, top, left), "")
          << Describe(options) << ", region " << height << "x" << width << " at " << top << ", "
          << left;
    }
  }
}

TEST(JpegDecoderTest, RegionAtReducedResolutionMatchesTheWholeReducedImage) {
  JpegDecoder decoder;
  std::mt19937 random(8);
  for (const JpegOptions& options : AllKinds()) {
    const std::string jpeg = EncodeJpeg(options);
    for (const int64_t denominator : {2, 4, 8}) {
      const DecodedImage whole = DecodeWhole(decoder, jpeg, denominator);
      for (int i = 0; i < 20; ++i) {
        Region wanted;
        wanted.top = static_cast<double>(random() % 1000) / 1000 * (options.height - 17);
        wanted.left = static_cast<double>(random() % 1000) / 1000 * (options.width - 17);
        wanted.height =
            16 + static_cast<double>(random() % 1000) / 1000 * (options.height - 17 - wanted.top);
        wanted.width =
            16 + static_cast<double>(random() % 1000) / 1000 * (options.width - 17 - wanted.left);
        const ImageSize at_least = {static_cast<int64_t>(wanted.height) / denominator,
                                    static_cast<int64_t>(wanted.width) / denominator};
        ASSERT_TRUE(decoder.Open(Bytes(jpeg)).ok());
        const auto decoded = decoder.Decode(wanted, at_least);
        ASSERT_TRUE(decoded.ok()) << decoded.status();
        // The wanted region is where the view reports it, at the same scale.
        const double scale = decoded->region.width / wanted.width;
        ASSERT_NEAR(scale, 1.0 / static_cast<double>(denominator), 1e-12);
        const double top = wanted.top * scale - decoded->region.top;
        const double left = wanted.left * scale - decoded->region.left;
        ASSERT_NEAR(top, std::round(top), 1e-9);
        ASSERT_NEAR(left, std::round(left), 1e-9);
        ASSERT_LE(decoded->region.top + decoded->region.height, decoded->view.height + 1e-9);
        ASSERT_LE(decoded->region.left + decoded->region.width, decoded->view.width + 1e-9);
        ASSERT_EQ(Difference(whole, decoded->view, std::lround(top), std::lround(left)), "")
            << Describe(options) << ", 1/" << denominator;
      }
    }
  }
}

// Half the resolution nearly equals the mean over each 2x2 pixels: both lose the high frequencies,
// in different ways.
TEST(JpegDecoderTest, ReducedResolutionShowsTheSameImage) {
  JpegDecoder decoder;
  JpegOptions options;
  options.height = 128;
  options.width = 160;
  const std::string jpeg = EncodeJpeg(options);
  const DecodedImage whole = DecodeWhole(decoder, jpeg);
  const DecodedImage half = DecodeWhole(decoder, jpeg, 2);
  ASSERT_EQ(half.height, 64);
  ASSERT_EQ(half.width, 80);
  double sum = 0;
  for (int64_t y = 0; y < half.height; ++y) {
    for (int64_t x = 0; x < half.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        const int mean = (whole.at(2 * y, 2 * x, c) + whole.at(2 * y, 2 * x + 1, c) +
                          whole.at(2 * y + 1, 2 * x, c) + whole.at(2 * y + 1, 2 * x + 1, c)) /
                         4;
        sum += std::abs(mean - half.at(y, x, c));
      }
    }
  }
  EXPECT_LT(sum / static_cast<double>(half.pixels.size()), 3);
}

TEST(JpegDecoderTest, ReducesResolutionOnlyAsFarAsAllowed) {
  JpegOptions options;
  options.height = 160;
  options.width = 320;
  const std::string jpeg = EncodeJpeg(options);
  JpegDecoder decoder;
  const auto width_for = [&](double height, double width, ImageSize at_least) {
    EXPECT_TRUE(decoder.Open(Bytes(jpeg)).ok());
    return decoder.Decode({0, 0, height, width}, at_least)->region.width;
  };
  EXPECT_EQ(width_for(160, 320, {20, 40}), 40);
  EXPECT_EQ(width_for(160, 320, {21, 40}), 80);
  EXPECT_EQ(width_for(160, 320, {20, 41}), 80);
  EXPECT_EQ(width_for(160, 320, {80, 160}), 160);
  EXPECT_EQ(width_for(160, 320, {81, 1}), 320);
  EXPECT_EQ(width_for(159, 320, {80, 160}), 320);
  EXPECT_EQ(width_for(160, 320, {1000, 1000}), 320);
}

TEST(JpegDecoderTest, DecodesAnyNumberOfTimesAfterOneOpen) {
  const std::string jpeg = EncodeJpeg({});
  JpegDecoder decoder;
  const DecodedImage whole = DecodeWhole(decoder, jpeg);
  ASSERT_TRUE(decoder.Open(Bytes(jpeg)).ok());
  const auto part = decoder.Decode({16, 8, 20, 30}, kFullResolution);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(Difference(whole, part->view, 16, 8), "");
  const auto again = decoder.Decode({0, 0, 48, 64}, kFullResolution);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(Difference(whole, again->view, 0, 0), "");
}

TEST(JpegDecoderTest, GreyHasThreeEqualChannels) {
  JpegOptions options;
  options.components = 1;
  JpegDecoder decoder;
  const DecodedImage image = DecodeWhole(decoder, EncodeJpeg(options));
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    ASSERT_EQ(image.pixels[i], image.pixels[i + 1]);
    ASSERT_EQ(image.pixels[i], image.pixels[i + 2]);
  }
}

TEST(JpegDecoderTest, RejectsInvalidFiles) {
  JpegDecoder decoder;
  for (const std::string& bytes : {std::string(), std::string("x"), std::string(1000, '\0'),
                                   std::string("\x89PNG\r\n\x1a\n")}) {
    EXPECT_EQ(decoder.Open(Bytes(bytes)).status().code(), absl::StatusCode::kDataLoss);
  }
  // A JPEG that ends within its header.
  const std::string jpeg = EncodeJpeg({});
  EXPECT_EQ(decoder.Open(Bytes(jpeg.substr(0, 100))).status().code(), absl::StatusCode::kDataLoss);
  // The decoder can decode the next image.
  EXPECT_TRUE(decoder.Open(Bytes(jpeg)).ok());
}

TEST(JpegDecoderTest, RejectsATruncatedImageOnlyIfItsEndIsWanted) {
  JpegOptions options;
  options.height = 160;
  for (const bool progressive : {false, true}) {
    options.progressive = progressive;
    const std::string jpeg = EncodeJpeg(options);
    const std::string cut = jpeg.substr(0, jpeg.size() * 3 / 4);
    JpegDecoder decoder;
    ASSERT_TRUE(decoder.Open(Bytes(cut)).ok());
    const auto whole = decoder.Decode({0, 0, 160, 64}, kFullResolution);
    EXPECT_EQ(whole.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(whole.status().message()), HasSubstr("Premature end"));
    // The last bytes of a progressive image affect every row.
    EXPECT_EQ(decoder.Decode({0, 0, 16, 64}, kFullResolution).ok(), !progressive);
    EXPECT_TRUE(decoder.Open(Bytes(jpeg)).ok());
    EXPECT_TRUE(decoder.Decode({0, 0, 160, 64}, kFullResolution).ok());
  }
}

TEST(JpegDecoderTest, RejectsTooManyPixels) {
  std::string jpeg = EncodeJpeg({});
  // The frame header: marker, length, precision, height, width.
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (const size_t at : {5, 6, 7, 8}) jpeg[frame + at] = static_cast<char>(0xf0);
  JpegDecoder decoder;
  const absl::Status status = decoder.Open(Bytes(jpeg)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("61680x61680"));
}

TEST(JpegDecoderTest, RejectsTooManyScans) {
  JpegOptions options;
  options.components = 1;
  options.progressive = true;
  const std::string jpeg = EncodeJpeg(options);
  // Repeats its second scan, the lowest frequencies. The last byte of a scan's header contains the
  // range of bits: with "all of them", repeating it is legal.
  const size_t begin = jpeg.find("\xff\xda", jpeg.find("\xff\xda") + 2);
  const size_t end = jpeg.find("\xff\xc4", begin);
  ASSERT_NE(end, std::string::npos);
  std::string scan = jpeg.substr(begin, end - begin);
  scan[9] = '\0';
  const auto with_scans = [&](int scans) {
    std::string bytes = jpeg.substr(0, begin);
    for (int i = 0; i < scans; ++i) bytes += scan;
    return bytes + "\xff\xd9";
  };
  JpegDecoder decoder;
  const std::string some = with_scans(100);
  ASSERT_TRUE(decoder.Open(Bytes(some)).ok());
  EXPECT_TRUE(decoder.Decode({0, 0, 48, 64}, kFullResolution).ok());
  const std::string many = with_scans(1000);
  ASSERT_TRUE(decoder.Open(Bytes(many)).ok());
  const absl::Status status = decoder.Decode({0, 0, 48, 64}, kFullResolution).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 500 scans"));
}

// The decoder survives arbitrary bytes, and can decode the next image.
TEST(JpegDecoderTest, SurvivesDamage) {
  JpegDecoder decoder;
  std::mt19937 random(9);
  std::vector<std::string> originals;
  for (JpegOptions options : AllKinds()) {
    options.height = 40;
    options.width = 56;
    originals.push_back(EncodeJpeg(options));
  }
  const DecodedImage first = DecodeWhole(decoder, originals[0]);
  int refused = 0;
  constexpr int kFiles = 2000;
  for (int i = 0; i < kFiles; ++i) {
    std::string jpeg = originals[random() % originals.size()];
    if (i % 3 == 0) jpeg.resize(random() % jpeg.size());
    if (i % 3 != 0) {
      for (uint32_t flips = 1 + random() % 8; flips > 0; --flips) {
        // Mostly in the header, where a changed bit has the largest effect.
        const size_t end = i % 3 == 1 ? std::min<size_t>(jpeg.size(), 700) : jpeg.size();
        jpeg[random() % end] ^= static_cast<char>(1 << random() % 8);
      }
    }
    const auto size = decoder.Open(Bytes(jpeg));
    if (!size.ok()) {
      ++refused;
      continue;
    }
    Region wanted = {0, 0, static_cast<double>(size->height), static_cast<double>(size->width)};
    if (i % 2 == 0) wanted = {wanted.height / 3, wanted.width / 3, wanted.height / 2, 1};
    // A flipped bit can make the image large and slow to decode: then a reduced size is enough.
    const ImageSize at_least =
        size->width * size->height < 1 << 20 ? kFullResolution : ImageSize{1, 1};
    const auto decoded = decoder.Decode(wanted, at_least);
    if (!decoded.ok()) ++refused;
    if (decoded.ok()) Copy(decoded->view);
  }
  EXPECT_GT(refused, kFiles / 4);
  EXPECT_LT(refused, kFiles);
  EXPECT_EQ(DecodeWhole(decoder, originals[0]).pixels, first.pixels);
}

}  // namespace
}  // namespace muster::data
