#include "trainer/data/transform.h"

#include <vector>

#include "common/testing/allocations.h"
#include "gtest/gtest.h"
#include "kernels/kernel_table.h"
#include "trainer/data/fake_dataset.h"

namespace muster::data {
namespace {

struct TransformedImage {
  ImageSize size;
  int64_t channels;
  std::vector<uint8_t> pixels;
  std::vector<kernels::ImageTransformParams> transforms;

  double At(uint32_t view, int64_t y, int64_t x, int64_t c) const {
    return pixels[((view * size.height + y) * size.width + x) * channels + c];
  }
};

TransformedImage Transformed(const FakeDataset& dataset, const TransformOptions& options,
                             uint32_t sample, uint32_t views = 1, uint64_t epoch = 0) {
  ImageTransform transform(&dataset, options);
  TransformedImage image{
      options.size, dataset.info().channels, {}, std::vector<kernels::ImageTransformParams>(views)};
  image.pixels.resize(views * options.size.height * options.size.width * image.channels);
  const absl::Status status =
      transform.Apply(epoch, sample, views, image.pixels.data(), image.transforms.data());
  EXPECT_TRUE(status.ok()) << status;
  return image;
}

// Checks that the view shows `part` of the stored image. At its edge, averages extend outside.
void ExpectShows(const FakeDataset& dataset, const TransformedImage& image, uint32_t sample,
                 uint32_t view, const Region& part, bool flip, double tolerance = 1.1) {
  const double step_y = part.height / static_cast<double>(image.size.height);
  const double step_x = part.width / static_cast<double>(image.size.width);
  for (int64_t y = 1; y + 1 < image.size.height; ++y) {
    for (int64_t x = 1; x + 1 < image.size.width; ++x) {
      const int64_t from_x = flip ? image.size.width - 1 - x : x;
      for (int64_t c = 0; c < image.channels; ++c) {
        const double expected =
            dataset.Brightness(sample, part.top + (static_cast<double>(y) + 0.5) * step_y,
                               part.left + (static_cast<double>(from_x) + 0.5) * step_x, c);
        ASSERT_NEAR(image.At(view, y, x, c), expected, tolerance)
            << "sample " << sample << " at " << y << ' ' << x << ' ' << c;
      }
    }
  }
}

TransformOptions Square(int64_t side) {
  TransformOptions options;
  options.size = {side, side};
  return options;
}

TEST(ImageTransformTest, CopiesImagesOfTheResultsSize) {
  const FakeDataset dataset(3, {{8, 9}}, 3);
  TransformOptions options;
  options.size = {8, 9};
  const TransformedImage image = Transformed(dataset, options, 2);
  auto reader = dataset.NewReader();
  ASSERT_TRUE(reader->Open(2).ok());
  const auto decoded = reader->Decode({0, 0, 8, 9}, {8, 9});
  const std::vector<uint8_t> stored(decoded->view.pixels, decoded->view.pixels + 8 * 9 * 3);
  EXPECT_EQ(image.pixels, stored);
}

// The expected values are those of torchvision's Resize(8) or Resize(10) and CenterCrop(8).
TEST(ImageTransformTest, EvaluationCropsTheCentre) {
  const FakeDataset dataset(8, {{40, 31}, {31, 40}, {33, 33}, {5, 7}}, 3);
  TransformOptions options = Square(8);
  for (uint32_t i = 0; i < 8; ++i) {
    // 40x31 becomes 10x8, cropped from row 1; 5x7 becomes 8x11, cropped from column 2 (1.5).
    const Region parts[] = {
        {4, 0, 32, 31}, {0, 4, 31, 32}, {0, 0, 33, 33}, {0, 14.0 / 11, 5, 56.0 / 11}};
    ExpectShows(dataset, Transformed(dataset, options, i), i, 0, parts[i % 4], false);
  }
  options.center_crop = 0.8;
  for (uint32_t i = 0; i < 8; ++i) {
    // 40x31 becomes 12x10, 5x7 becomes 10x14.
    const Region parts[] = {{40.0 / 6, 3.1, 80.0 / 3, 24.8},
                            {3.1, 40.0 / 6, 24.8, 80.0 / 3},
                            {3.3, 3.3, 26.4, 26.4},
                            {0.5, 1.5, 4, 4}};
    ExpectShows(dataset, Transformed(dataset, options, i), i, 0, parts[i % 4], false);
  }
}

TEST(ImageTransformTest, ReducedDecodingGivesTheSameResult) {
  const std::vector<ImageSize> sizes = {{101, 99}, {64, 90}};
  const FakeDataset full(2, sizes, 3), reduced(2, sizes, 3, /*reduces=*/true);
  TransformOptions options = Square(15);
  for (const bool training : {false, true}) {
    if (training) options.augment.random_resized_crop.emplace();
    for (uint32_t sample = 0; sample < 2; ++sample) {
      const TransformedImage expected = Transformed(full, options, sample, 2);
      const TransformedImage actual = Transformed(reduced, options, sample, 2);
      for (size_t i = 0; i < expected.pixels.size(); ++i) {
        ASSERT_NEAR(actual.pixels[i], expected.pixels[i], 4);
      }
    }
  }
}

TEST(ImageTransformTest, RandomCropsAreResizedAndMirrored) {
  for (const bool reduces : {false, true}) {
    const FakeDataset dataset(40, {{50, 60}, {90, 45}}, 3, reduces);
    TransformOptions options = Square(12);
    options.augment.flip = true;
    options.augment.seed = 9;
    options.augment.random_resized_crop.emplace();
    int flips = 0;
    for (uint32_t sample = 0; sample < 40; ++sample) {
      const TransformedImage image = Transformed(dataset, options, sample, 2, /*epoch=*/5);
      for (uint32_t view = 0; view < 2; ++view) {
        const SampleView of{5, sample, view};
        const Rectangle crop =
            DrawCrop(*options.augment.random_resized_crop, 9, dataset.stored(sample), of);
        const bool flip = DrawPlacement(options.augment, of).flip;
        flips += flip;
        ExpectShows(dataset, image, sample, view,
                    {double(crop.top), double(crop.left), double(crop.height), double(crop.width)},
                    flip, 2);
      }
    }
    EXPECT_GT(flips, 20);
    EXPECT_LT(flips, 60);
  }
}

TEST(ImageTransformTest, PadsAfterResizing) {
  const FakeDataset dataset(30, {{6, 6}}, 1);
  TransformOptions plain = Square(20);
  TransformOptions padded = plain;
  padded.augment.crop_padding = 3;
  padded.augment.flip = true;
  for (uint32_t sample = 0; sample < 30; ++sample) {
    const TransformedImage resized = Transformed(dataset, plain, sample);
    const TransformedImage image = Transformed(dataset, padded, sample);
    std::vector<uint8_t> expected(resized.pixels.size());
    const kernels::ImageBatchShape shape{1, 20, 20, 1};
    kernels::ImageTransformParams params = kernels::WholeImage(shape, 0);
    const Placement placement = DrawPlacement(padded.augment, {0, sample, 0});
    params.dy = placement.dy;
    params.dx = placement.dx;
    params.flip = placement.flip;
    kernels::cpu::RenderScratch scratch;
    kernels::cpu::RenderImage(shape, resized.pixels.data(), params, kernels::CpuKernels().resize,
                              scratch, expected.data());
    EXPECT_EQ(image.pixels, expected);
  }
}

TEST(ImageTransformTest, DrawsErasuresForTheResult) {
  const FakeDataset dataset(20, {{30, 40}}, 3);
  TransformOptions options = Square(10);
  EXPECT_EQ(Transformed(dataset, options, 0).transforms[0].erased_height, 0);
  options.augment.random_erasing.emplace();
  int erased = 0;
  for (uint32_t sample = 0; sample < 20; ++sample) {
    const TransformedImage image = Transformed(dataset, options, sample, 2);
    for (uint32_t view = 0; view < 2; ++view) {
      const Rectangle expected =
          DrawErasure(*options.augment.random_erasing, 0, {10, 10}, {0, sample, view});
      EXPECT_EQ(image.transforms[view].erased_top, expected.top);
      EXPECT_EQ(image.transforms[view].erased_left, expected.left);
      EXPECT_EQ(image.transforms[view].erased_height, expected.height);
      EXPECT_EQ(image.transforms[view].erased_width, expected.width);
      erased += expected.height > 0;
    }
  }
  EXPECT_GT(erased, 0);
}

TEST(ImageTransformTest, ReturnsErrorsOfTheReader) {
  FakeDataset dataset(3, {{8, 8}}, 1);
  dataset.set_damaged(1);
  ImageTransform transform(&dataset, Square(8));
  std::vector<uint8_t> out(64);
  kernels::ImageTransformParams params;
  EXPECT_TRUE(transform.Apply(0, 0, 1, out.data(), &params).ok());
  EXPECT_EQ(transform.Apply(0, 1, 1, out.data(), &params),
            absl::DataLossError("image 1 is damaged"));
  EXPECT_TRUE(transform.Apply(0, 2, 1, out.data(), &params).ok());
}

TEST(ImageTransformTest, DoesNotAllocateAfterTheLargestImage) {
  const FakeDataset dataset(30, {{60, 70}, {33, 20}}, 3);
  TransformOptions options = Square(16);
  options.augment.crop_padding = 2;
  options.augment.flip = true;
  options.augment.random_resized_crop.emplace();
  options.augment.random_erasing.emplace();
  ImageTransform transform(&dataset, options);
  std::vector<uint8_t> out(2 * 16 * 16 * 3);
  kernels::ImageTransformParams transforms[2];
  const auto all_samples = [&] {
    for (uint32_t sample = 0; sample < 30; ++sample) {
      ASSERT_TRUE(transform.Apply(1, sample, 2, out.data(), transforms).ok());
    }
  };
  all_samples();
  const int64_t before = Allocations();
  all_samples();
  EXPECT_EQ(Allocations(), before);
}

}  // namespace
}  // namespace muster::data
