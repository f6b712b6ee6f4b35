#include "trainer/data/augment.h"

#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/philox.h"

namespace muster::data {
namespace {

std::tuple<int, int, bool> Placed(const AugmentOptions& options, const SampleView& of) {
  const Placement placement = DrawPlacement(options, of);
  return {placement.dy, placement.dx, placement.flip};
}

TEST(DrawPlacementTest, IsAFunctionOfSeedEpochSampleAndView) {
  const AugmentOptions options{2, true, 7, {}, {}};
  const AugmentOptions other_seed{2, true, 8, {}, {}};
  std::set<std::tuple<int, int, bool>> seen;
  int epochs_differ = 0, seeds_differ = 0, views_differ = 0;
  for (uint32_t sample = 0; sample < 2000; ++sample) {
    const auto placement = Placed(options, {3, sample, 0});
    EXPECT_EQ(placement, Placed(options, {3, sample, 0}));
    seen.insert(placement);
    epochs_differ += placement != Placed(options, {4, sample, 0});
    seeds_differ += placement != Placed(other_seed, {3, sample, 0});
    views_differ += placement != Placed(options, {3, sample, 1});
  }
  EXPECT_EQ(seen.size(), 5 * 5 * 2);  // every offset from -2 to 2, mirrored or not
  EXPECT_GT(epochs_differ, 1800);
  EXPECT_GT(seeds_differ, 1800);
  EXPECT_GT(views_differ, 1800);
}

// A resumed training must draw the same numbers as before: key and counter must never change.
TEST(DrawPlacementTest, DrawsOfTheFirstViewNeverChange) {
  const AugmentOptions options{4, true, 11, {}, {}};
  const uint64_t epoch = (uint64_t{5} << 32) + 6;
  for (uint32_t sample = 0; sample < 100; ++sample) {
    const kernels::PhiloxCounter words =
        kernels::Philox4x32({sample, 0, 6, 5}, kernels::DerivePhiloxKey(11, 0x6175'676d'656e'7421));
    const Placement placement = DrawPlacement(options, {epoch, sample, 0});
    EXPECT_EQ(placement.dy, static_cast<int>(kernels::UniformBelow(words[0], 9)) - 4);
    EXPECT_EQ(placement.dx, static_cast<int>(kernels::UniformBelow(words[1], 9)) - 4);
    EXPECT_EQ(placement.flip, words[2] % 2 == 1);
  }
}

TEST(DrawPlacementTest, DoesNothingByDefault) {
  for (uint32_t sample = 0; sample < 100; ++sample) {
    EXPECT_EQ(Placed({0, false, 1, {}, {}}, {0, sample, 0}), std::tuple(0, 0, false));
  }
}

// Area and ratio of draws for an image in which every draw fits at the first try.
struct Moments {
  double lowest_area = 1, highest_area = 0, mean_area = 0;
  double lowest_ratio = 100, highest_ratio = 0, mean_log_ratio = 0;
  std::map<bool, int> upper_half, left_half;  // number of draws there
};

template <typename Draw>
Moments MomentsOf(ImageSize size, const Draw& draw) {
  Moments moments;
  constexpr int kDraws = 4000;
  for (uint32_t sample = 0; sample < kDraws; ++sample) {
    const Rectangle part = draw(sample);
    EXPECT_GE(part.top, 0);
    EXPECT_GE(part.left, 0);
    EXPECT_LE(part.top + part.height, size.height);
    EXPECT_LE(part.left + part.width, size.width);
    const double area = double(part.height) * part.width / double(size.height * size.width);
    const double ratio = double(part.width) / part.height;
    moments.lowest_area = std::min(moments.lowest_area, area);
    moments.highest_area = std::max(moments.highest_area, area);
    moments.mean_area += area / kDraws;
    moments.lowest_ratio = std::min(moments.lowest_ratio, ratio);
    moments.highest_ratio = std::max(moments.highest_ratio, ratio);
    moments.mean_log_ratio += std::log(ratio) / kDraws;
    ++moments.upper_half[2 * part.top + part.height < size.height];
    ++moments.left_half[2 * part.left + part.width < size.width];
  }
  return moments;
}

TEST(DrawCropTest, AreaAndRatioHaveTheRequestedDistribution) {
  const RandomResizedCropOptions options{0.1, 0.3, 0.5, 2};
  const ImageSize size{1000, 1000};
  const Moments moments = MomentsOf(size, [&](uint32_t sample) {
    return DrawCrop(options, 3, size, {1, sample, 0});
  });
  EXPECT_NEAR(moments.lowest_area, 0.1, 2e-3);
  EXPECT_NEAR(moments.highest_area, 0.3, 2e-3);
  EXPECT_NEAR(moments.mean_area, 0.2, 4e-3);
  EXPECT_NEAR(moments.lowest_ratio, 0.5, 0.01);
  EXPECT_NEAR(moments.highest_ratio, 2, 0.01);
  EXPECT_NEAR(moments.mean_log_ratio, 0, 0.03);
  EXPECT_NEAR(moments.upper_half.at(true), 2000, 200);
  EXPECT_NEAR(moments.left_half.at(true), 2000, 200);
}

TEST(DrawCropTest, IsAFunctionOfSeedEpochSampleAndView) {
  const RandomResizedCropOptions options;
  const ImageSize size{375, 500};
  const auto draw = [&](uint64_t seed, const SampleView& of) {
    const Rectangle crop = DrawCrop(options, seed, size, of);
    return std::tuple(crop.top, crop.left, crop.height, crop.width);
  };
  int same = 0;
  for (uint32_t sample = 0; sample < 200; ++sample) {
    const auto crop = draw(1, {0, sample, 0});
    EXPECT_EQ(crop, draw(1, {0, sample, 0}));
    same += crop == draw(2, {0, sample, 0}) || crop == draw(1, {1, sample, 0}) ||
            crop == draw(1, {0, sample, 1}) || crop == draw(1, {0, sample + 1, 0});
  }
  EXPECT_EQ(same, 0);
}

// In a strip, no crop with the requested area has an allowed ratio.
TEST(DrawCropTest, ReturnsTheCentreOfAStrip) {
  const RandomResizedCropOptions options{0.9, 1, 0.75, 4.0 / 3};
  const Rectangle wide = DrawCrop(options, 1, {30, 300}, {0, 0, 0});
  EXPECT_EQ(std::tuple(wide.top, wide.left, wide.height, wide.width), std::tuple(0, 130, 30, 40));
  const Rectangle tall = DrawCrop(options, 1, {300, 30}, {0, 0, 0});
  EXPECT_EQ(std::tuple(tall.top, tall.left, tall.height, tall.width), std::tuple(130, 0, 40, 30));
  const Rectangle pixel = DrawCrop(options, 1, {1, 1}, {0, 0, 0});
  EXPECT_EQ(std::tuple(pixel.top, pixel.left, pixel.height, pixel.width), std::tuple(0, 0, 1, 1));
}

TEST(DrawErasureTest, AreaAndRatioHaveTheRequestedDistribution) {
  const RandomErasingOptions options{1, 0.02, 0.2, 0.5, 2};
  const ImageSize size{800, 900};
  const Moments moments = MomentsOf(size, [&](uint32_t sample) {
    return DrawErasure(options, 3, size, {1, sample, 0});
  });
  EXPECT_NEAR(moments.lowest_area, 0.02, 2e-3);
  EXPECT_NEAR(moments.highest_area, 0.2, 2e-3);
  EXPECT_NEAR(moments.mean_area, 0.11, 4e-3);
  EXPECT_NEAR(moments.lowest_ratio, 0.5, 0.01);
  EXPECT_NEAR(moments.highest_ratio, 2, 0.01);
  EXPECT_NEAR(moments.mean_log_ratio, 0, 0.03);
}

TEST(DrawErasureTest, OccursWithTheRequestedProbability) {
  RandomErasingOptions options;
  for (const double probability : {0.0, 0.25, 1.0}) {
    options.probability = probability;
    int erased = 0;
    for (uint32_t sample = 0; sample < 4000; ++sample) {
      erased += DrawErasure(options, 5, {224, 224}, {0, sample, 1}).height > 0;
    }
    EXPECT_NEAR(erased, probability * 4000, probability * 200);
  }
}

TEST(DrawErasureTest, IsEmptyIfNoTryFits) {
  const Rectangle erasure = DrawErasure({1, 1, 1, 5, 5}, 1, {20, 20}, {0, 0, 0});
  EXPECT_EQ(erasure.height * erasure.width, 0);
}

}  // namespace
}  // namespace muster::data
