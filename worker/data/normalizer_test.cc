#include "worker/data/normalizer.h"

#include <vector>

#include "gtest/gtest.h"

namespace muster::data {
namespace {

DatasetInfo Info(std::vector<float> mean, std::vector<float> deviation) {
  DatasetInfo info;
  info.channels = static_cast<int64_t>(mean.size());
  info.mean = std::move(mean);
  info.standard_deviation = std::move(deviation);
  return info;
}

Batch BatchOf(const std::vector<uint8_t>& pixels, ImageSize size, size_t rows) {
  Batch batch;
  batch.rows = rows;
  batch.size = size;
  batch.pixels = pixels;
  return batch;
}

TEST(NormalizerTest, ScalesByChannel) {
  std::vector<float> out(4);
  const std::vector<uint8_t> pixels = {0, 0, 255, 255};
  Normalizer(Info({0.5f, 0.0f}, {0.25f, 1.0f})).Apply(BatchOf(pixels, {1, 2}, 1), out.data());
  EXPECT_FLOAT_EQ(out[0], -2.0f);
  EXPECT_FLOAT_EQ(out[1], 0.0f);
  EXPECT_FLOAT_EQ(out[2], 2.0f);
  EXPECT_FLOAT_EQ(out[3], 1.0f);
}

TEST(NormalizerTest, AnyLengthOfOneAndThreeChannels) {
  const std::vector<float> means = {0.4f, 0.5f, 0.6f}, deviations = {0.2f, 0.25f, 0.3f};
  for (const size_t channels : {1u, 3u}) {
    const DatasetInfo info = Info({means.begin(), means.begin() + channels},
                                  {deviations.begin(), deviations.begin() + channels});
    for (const size_t width : {1u, 7u, 16u, 50u, 784u}) {
      std::vector<uint8_t> pixels(width * channels);
      for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 7);
      std::vector<float> out(pixels.size());
      Normalizer(info).Apply(BatchOf(pixels, {1, static_cast<int64_t>(width)}, 1), out.data());
      for (size_t i = 0; i < pixels.size(); ++i) {
        const size_t c = i % channels;
        ASSERT_NEAR(out[i], (pixels[i] / 255.0 - means[c]) / deviations[c], 2e-6);
      }
    }
  }
}

TEST(NormalizerTest, ErasedRectanglesAreZeroAndNothingElseIs) {
  const ImageSize size{5, 6};
  const std::vector<uint8_t> pixels(3 * 5 * 6 * 2, 200);
  const std::vector<Rectangle> erasures = {{1, 2, 3, 4}, {}, {4, 0, 1, 1}};
  Batch batch = BatchOf(pixels, size, 3);
  batch.erasures = erasures;
  std::vector<float> out(pixels.size(), -1);
  Normalizer(Info({0.5f, 0.5f}, {1, 1})).Apply(batch, out.data());
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    const int64_t x = i / 2 % 6, y = i / 12 % 5, row = i / 60;
    const Rectangle& erasure = erasures[row];
    const bool erased = y >= erasure.top && y < erasure.top + erasure.height && x >= erasure.left &&
                        x < erasure.left + erasure.width;
    EXPECT_EQ(out[i] == 0, erased) << i;
  }
}

}  // namespace
}  // namespace muster::data
