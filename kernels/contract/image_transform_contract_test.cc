// Compares every kernel set's LoadImages with the reference.
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/image_transform.h"

namespace muster::kernels {
namespace {

class ImageTransformContractTest : public KernelSetTest {
 protected:
  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  int32_t Below(int64_t limit) { return static_cast<int32_t>(random_() % limit); }

  Bytes Pixels(size_t count) {
    Bytes x(count);
    for (uint8_t& byte : x) byte = static_cast<uint8_t>(random_());
    return x;
  }

  // `resized`: a few values may be rounded to an adjacent byte.
  void ExpectAsReference(const ImageBatchShape& shape, const Bytes& x,
                         const TestVector<ImageTransformParams>& transforms, bool resized) {
    TestBuffer scale(shape.channels), shift(shape.channels);
    for (int64_t c = 0; c < shape.channels; ++c) {
      scale[c] = static_cast<float>(0.5 + 0.25 * static_cast<double>(c));
      shift[c] = static_cast<float>(-3.0 - static_cast<double>(c));
    }
    const size_t size = shape.samples * shape.height * shape.width * shape.channels;
    TestBuffer y(size), expected(size);
    kernels().load_images(shape, x.data(), transforms.data(), scale.data(), shift.data(), y.data());
    reference().load_images(shape, x.data(), transforms.data(), scale.data(), shift.data(),
                            expected.data());
    size_t differing = 0;
    for (size_t i = 0; i < size; ++i) {
      const float byte = scale[i % shape.channels];
      ASSERT_NEAR(y[i], expected[i], (resized ? byte : 0) + 1e-4) << "at " << i;
      ASSERT_EQ(y[i] == 0, expected[i] == 0) << "at " << i;
      differing += y[i] < expected[i] - byte / 2 || y[i] > expected[i] + byte / 2;
    }
    EXPECT_LE(differing, 1 + size / 100);
  }

  void Erase(const ImageBatchShape& shape, ImageTransformParams& params) {
    params.erased_top = Below(shape.height);
    params.erased_left = Below(shape.width);
    params.erased_height = Below(shape.height - params.erased_top + 1);
    params.erased_width = Below(shape.width - params.erased_left + 1);
  }
};

TEST_P(ImageTransformContractTest, WholeImages) {
  for (const int64_t channels : {1, 2, 3}) {
    for (const int64_t width : {1, 7, 50}) {
      const ImageBatchShape shape{3, 5, width, channels};
      const int64_t bytes = 5 * width * channels;
      TestVector<ImageTransformParams> transforms;
      for (int64_t i = 0; i < shape.samples; ++i) {
        transforms.push_back(WholeImage(shape, (2 - i) * bytes));
      }
      ExpectAsReference(shape, Pixels(shape.samples * bytes), transforms, /*resized=*/false);
    }
  }
  ExpectAsReference({0, 5, 7, 3}, Pixels(0), {}, /*resized=*/false);
}

// Translations in all directions, also beyond the edges, with rows longer than the image.
TEST_P(ImageTransformContractTest, TranslatedAndMirrored) {
  for (const int64_t channels : {1, 3}) {
    ImageBatchShape shape{0, 5, 7, channels};
    const Bytes x = Pixels(6 * (9 * channels + 2));
    TestVector<ImageTransformParams> transforms;
    for (int dy = -6; dy <= 6; ++dy) {
      for (int dx = -8; dx <= 8; ++dx) {
        for (const bool flip : {false, true}) {
          ImageTransformParams params = WholeImage(shape, 1);
          params.in_height = 6;
          params.in_width = 9;
          params.row_bytes = 9 * channels + 2;
          params.top = dx % 2 == 0 ? 0 : 1;
          params.left = dy % 2 == 0 ? 0 : 2;
          params.dy = dy;
          params.dx = dx;
          params.flip = flip;
          transforms.push_back(params);
        }
      }
    }
    shape.samples = static_cast<int64_t>(transforms.size());
    ExpectAsReference(shape, x, transforms, /*resized=*/false);
  }
}

TEST_P(ImageTransformContractTest, BoxesResizedTranslatedAndErased) {
  for (const int64_t channels : {1, 3}) {
    const ImageBatchShape shape{60, 11, 14, channels};
    constexpr int64_t kHeight = 30, kWidth = 25;
    const int64_t row_bytes = kWidth * channels;
    const Bytes x = Pixels(4 * kHeight * row_bytes);
    TestVector<ImageTransformParams> transforms(shape.samples);
    for (int64_t i = 0; i < shape.samples; ++i) {
      ImageTransformParams& params = transforms[i];
      // A region of one of the images, like a crop before resizing.
      const int64_t first_row = Below(10), first_column = Below(10);
      params.image = (i % 4 * kHeight + first_row) * row_bytes + first_column * channels;
      params.row_bytes = row_bytes;
      params.in_height = 1 + Below(kHeight - first_row);
      params.in_width = 1 + Below(kWidth - first_column);
      params.top = Uniform(0, 0.9 * params.in_height);
      params.left = Uniform(0, 0.9 * params.in_width);
      params.box_height = Uniform(0.1, 1) * (params.in_height - params.top);
      params.box_width = Uniform(0.1, 1) * (params.in_width - params.left);
      params.flip = i % 2 == 0;
      if (i % 3 == 0) params.dy = Below(7) - 3;
      if (i % 3 == 1) params.dx = Below(7) - 3;
      if (i % 5 != 0) Erase(shape, params);
    }
    ExpectAsReference(shape, x, transforms, /*resized=*/true);
  }
}

TEST_P(ImageTransformContractTest, LargeReductionAndEnlargement) {
  const ImageBatchShape small{2, 4, 5, 3}, large{1, 60, 70, 3};
  for (const ImageBatchShape& shape : {small, large}) {
    const int64_t height = shape.samples == 2 ? 90 : 6, width = shape.samples == 2 ? 70 : 5;
    TestVector<ImageTransformParams> transforms;
    for (int64_t i = 0; i < shape.samples; ++i) {
      ImageTransformParams params;
      params.image = i * height * width * 3;
      params.row_bytes = width * 3;
      params.in_height = static_cast<int32_t>(height);
      params.in_width = static_cast<int32_t>(width);
      params.box_height = static_cast<double>(height);
      params.box_width = static_cast<double>(width);
      transforms.push_back(params);
    }
    ExpectAsReference(shape, Pixels(shape.samples * height * width * 3), transforms,
                      /*resized=*/true);
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, ImageTransformContractTest, EveryKernelSet(), KernelSetName);

}  // namespace
}  // namespace muster::kernels
