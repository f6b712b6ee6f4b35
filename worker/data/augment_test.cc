#include "worker/data/augment.h"

#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace muster::data {
namespace {

DatasetInfo Shape(int64_t height, int64_t width, int64_t channels) {
  return {"test",
          height,
          width,
          channels,
          10,
          std::vector<float>(channels, 0.5f),
          std::vector<float>(channels, 0.25f)};
}

// Pixel by pixel, as Placement's comment says.
std::vector<uint8_t> PlaceSlowly(const std::vector<uint8_t>& image, const DatasetInfo& info,
                                 const Placement& placement) {
  std::vector<uint8_t> out;
  for (int64_t y = 0; y < info.height; ++y) {
    for (int64_t column = 0; column < info.width; ++column) {
      const int64_t x = placement.flip ? info.width - 1 - column : column;
      const int64_t from_y = y + placement.dy, from_x = x + placement.dx;
      const bool inside = from_y >= 0 && from_y < info.height && from_x >= 0 && from_x < info.width;
      for (int64_t c = 0; c < info.channels; ++c) {
        out.push_back(inside ? image[(from_y * info.width + from_x) * info.channels + c] : 0);
      }
    }
  }
  return out;
}

TEST(PlaceImageTest, AgreesWithTheDefinition) {
  for (const int64_t channels : {1, 3}) {
    const DatasetInfo info = Shape(5, 7, channels);
    std::vector<uint8_t> image(5 * 7 * channels);
    for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<uint8_t>(i + 1);
    for (int dy = -6; dy <= 6; ++dy) {
      for (int dx = -8; dx <= 8; ++dx) {
        for (const bool flip : {false, true}) {
          const Placement placement{dy, dx, flip};
          std::vector<uint8_t> out(image.size(), 0xff);
          PlaceImage(image.data(), info, placement, out.data());
          ASSERT_EQ(out, PlaceSlowly(image, info, placement)) << dy << ' ' << dx << ' ' << flip;
        }
      }
    }
  }
}

TEST(DrawPlacementTest, IsAFunctionOfSeedEpochAndSample) {
  const AugmentOptions options{2, true, 7};
  const auto draw = [](const AugmentOptions& o, uint64_t epoch, uint64_t sample) {
    const Placement p = DrawPlacement(o, epoch, sample);
    return std::make_pair(std::make_pair(p.dy, p.dx), p.flip);
  };
  std::set<std::pair<std::pair<int, int>, bool>> seen;
  int epochs_differ = 0, seeds_differ = 0;
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    const auto placement = draw(options, 3, sample);
    EXPECT_EQ(placement, draw(options, 3, sample));
    seen.insert(placement);
    epochs_differ += placement != draw(options, 4, sample);
    seeds_differ += placement != draw({2, true, 8}, 3, sample);
  }
  EXPECT_EQ(seen.size(), 5 * 5 * 2);  // every offset from -2 to 2, mirrored or not
  EXPECT_GT(epochs_differ, 1800);
  EXPECT_GT(seeds_differ, 1800);
}

TEST(DrawPlacementTest, NothingAskedForIsNothingDone) {
  for (uint64_t sample = 0; sample < 100; ++sample) {
    const Placement placement = DrawPlacement({0, false, 1}, 0, sample);
    EXPECT_EQ(placement.dy, 0);
    EXPECT_EQ(placement.dx, 0);
    EXPECT_FALSE(placement.flip);
  }
}

TEST(NormalizerTest, ScalesByChannel) {
  DatasetInfo info = Shape(1, 2, 2);
  info.mean = {0.5f, 0.0f};
  info.standard_deviation = {0.25f, 1.0f};
  std::vector<float> out(4);
  Normalizer(info).Apply({0, 0, 255, 255}, out.data());
  EXPECT_FLOAT_EQ(out[0], -2.0f);
  EXPECT_FLOAT_EQ(out[1], 0.0f);
  EXPECT_FLOAT_EQ(out[2], 2.0f);
  EXPECT_FLOAT_EQ(out[3], 1.0f);
}

TEST(NormalizerTest, OneChannelOfAnyLength) {
  for (const size_t pixels : {1u, 7u, 784u}) {
    std::vector<uint8_t> in(pixels);
    for (size_t i = 0; i < pixels; ++i) in[i] = static_cast<uint8_t>(i);
    std::vector<float> out(pixels);
    Normalizer(Shape(1, pixels, 1)).Apply(in, out.data());
    for (size_t i = 0; i < pixels; ++i) {
      EXPECT_NEAR(out[i], (in[i] / 255.0 - 0.5) / 0.25, 1e-6);
    }
  }
}

}  // namespace
}  // namespace muster::data
