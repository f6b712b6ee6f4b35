// Compares every kernel set's resize with the reference. tests/images/resize_test.py compares it
// with Pillow.
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/resize.h"

namespace muster::kernels {
namespace {

class ResizeContractTest : public KernelSetTest {
 protected:
  ResizeContractTest() { random_.seed(5); }

  // Resizes an image in an array of exactly its size, so that a sanitizer detects reads past its
  // end.
  Bytes Resized(const KernelTable& kernels, const ResizeShape& shape, const Bytes& x) {
    Bytes y(shape.height * shape.width * shape.channels + kGuard, kUnwritten);
    std::vector<float> scratch((ResizeScratchBytes(shape) + 3) / 4 + kGuard, kUnwritten);
    kernels.resize(shape, x.data(), y.data(), scratch.data());
    for (int i = 0; i < kGuard; ++i) {
      EXPECT_EQ(y[y.size() - 1 - i], kUnwritten);
      EXPECT_EQ(scratch[scratch.size() - 1 - i], kUnwritten);
    }
    return y;
  }

  Bytes Pixels(const ResizeShape& shape) {
    // The last row ends with its last pixel.
    Bytes x((shape.in_height - 1) * shape.row_bytes + shape.in_width * shape.channels);
    for (uint8_t& value : x) value = static_cast<uint8_t>(random_());
    return x;
  }

  // Values may be rounded differently by 1.
  void ExpectAsReference(const ResizeShape& shape) {
    SCOPED_TRACE(testing::PrintToString(
        std::vector<double>{double(shape.in_height), double(shape.in_width), double(shape.channels),
                            shape.top, shape.left, shape.box_height, shape.box_width,
                            double(shape.height), double(shape.width), double(shape.flip)}));
    const Bytes x = Pixels(shape);
    const Bytes actual = Resized(kernels(), shape, x);
    const Bytes expected = Resized(reference(), shape, x);
    int differing = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 1) << "at " << i;
      differing += actual[i] != expected[i];
    }
    EXPECT_LE(differing, 1 + static_cast<int>(actual.size()) / 100);
  }

  static constexpr int kGuard = 8;
  static constexpr uint8_t kUnwritten = 0xa5;
};

ResizeShape WholeImage(int64_t in_height, int64_t in_width, int64_t channels, int64_t height,
                       int64_t width) {
  ResizeShape shape;
  shape.in_height = in_height;
  shape.in_width = in_width;
  shape.channels = channels;
  shape.row_bytes = in_width * channels;
  shape.box_height = static_cast<double>(in_height);
  shape.box_width = static_cast<double>(in_width);
  shape.height = height;
  shape.width = width;
  return shape;
}

TEST_P(ResizeContractTest, WholeImagesOfAnySize) {
  const int64_t sizes[][4] = {{1, 1, 1, 1},   {1, 1, 5, 7},   {2, 3, 1, 1},     {7, 5, 7, 5},
                              {9, 70, 4, 33}, {64, 3, 10, 9}, {40, 41, 13, 97}, {33, 100, 32, 7}};
  for (const auto& [in_height, in_width, height, width] : sizes) {
    for (const int64_t channels : {1, 2, 3, 4}) {
      for (const bool flip : {false, true}) {
        ResizeShape shape = WholeImage(in_height, in_width, channels, height, width);
        shape.flip = flip;
        ExpectAsReference(shape);
      }
    }
  }
}

TEST_P(ResizeContractTest, BoxesOfImagesWithLongerRows) {
  std::uniform_real_distribution<double> uniform;
  for (int round = 0; round < 60; ++round) {
    ResizeShape shape = WholeImage(5 + round % 40, 3 + round * 7 % 50, round % 2 == 0 ? 3 : 1,
                                   1 + round % 23, 1 + round * 5 % 31);
    shape.row_bytes += round % 5;
    const auto in_height = static_cast<double>(shape.in_height);
    const auto in_width = static_cast<double>(shape.in_width);
    shape.top = uniform(random_) * 0.9 * in_height;
    shape.left = uniform(random_) * 0.9 * in_width;
    shape.box_height = uniform(random_) * (in_height - shape.top);
    shape.box_width = uniform(random_) * (in_width - shape.left);
    shape.flip = round % 3 == 0;
    ExpectAsReference(shape);
  }
}

TEST_P(ResizeContractTest, SameSizeGivesTheSameImage) {
  const ResizeShape shape = WholeImage(12, 31, 3, 12, 31);
  const Bytes x = Pixels(shape);
  Bytes y = Resized(kernels(), shape, x);
  y.resize(x.size());
  EXPECT_EQ(y, x);
}

// An image of 255 stays 255 in spite of the rounding of weights.
TEST_P(ResizeContractTest, WhiteStaysWhite) {
  for (int64_t size = 1; size < 80; ++size) {
    const ResizeShape shape = WholeImage(37, 41, 3, size, 81 - size);
    const Bytes x(shape.in_height * shape.row_bytes, 255);
    Bytes y = Resized(kernels(), shape, x);
    y.resize(shape.height * shape.width * shape.channels);
    EXPECT_EQ(y, Bytes(y.size(), 255));
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, ResizeContractTest, EveryKernelSet(), KernelSetName);

}  // namespace
}  // namespace muster::kernels
