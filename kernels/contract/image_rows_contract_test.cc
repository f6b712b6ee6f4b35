// Compares every kernel set's LoadImages with the reference.
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/image_rows.h"

namespace muster::kernels {
namespace {

class ImageRowsContractTest : public KernelSetTest {
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
  void ExpectAsReference(const ImageRowsShape& shape, const Bytes& x,
                         const TestVector<ImageRow>& rows, bool resized) {
    TestBuffer scale(shape.channels), shift(shape.channels);
    for (int64_t c = 0; c < shape.channels; ++c) {
      scale[c] = static_cast<float>(0.5 + 0.25 * static_cast<double>(c));
      shift[c] = static_cast<float>(-3.0 - static_cast<double>(c));
    }
    const size_t size = shape.rows * shape.height * shape.width * shape.channels;
    TestBuffer y(size), expected(size);
    kernels().load_images(shape, x.data(), rows.data(), scale.data(), shift.data(), y.data());
    reference().load_images(shape, x.data(), rows.data(), scale.data(), shift.data(),
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

  void Erase(const ImageRowsShape& shape, ImageRow& row) {
    row.erased_top = Below(shape.height);
    row.erased_left = Below(shape.width);
    row.erased_height = Below(shape.height - row.erased_top + 1);
    row.erased_width = Below(shape.width - row.erased_left + 1);
  }
};

TEST_P(ImageRowsContractTest, WholeImages) {
  for (const int64_t channels : {1, 2, 3}) {
    for (const int64_t width : {1, 7, 50}) {
      const ImageRowsShape shape{3, 5, width, channels};
      const int64_t bytes = 5 * width * channels;
      TestVector<ImageRow> rows;
      for (int64_t i = 0; i < shape.rows; ++i) rows.push_back(WholeImage(shape, (2 - i) * bytes));
      ExpectAsReference(shape, Pixels(shape.rows * bytes), rows, /*resized=*/false);
    }
  }
  ExpectAsReference({0, 5, 7, 3}, Pixels(0), {}, /*resized=*/false);
}

// Translations in all directions, also beyond the edges, with rows longer than the image.
TEST_P(ImageRowsContractTest, TranslatedAndMirrored) {
  for (const int64_t channels : {1, 3}) {
    ImageRowsShape shape{0, 5, 7, channels};
    const Bytes x = Pixels(6 * (9 * channels + 2));
    TestVector<ImageRow> rows;
    for (int dy = -6; dy <= 6; ++dy) {
      for (int dx = -8; dx <= 8; ++dx) {
        for (const bool flip : {false, true}) {
          ImageRow row = WholeImage(shape, 1);
          row.in_height = 6;
          row.in_width = 9;
          row.line_bytes = 9 * channels + 2;
          row.top = dx % 2 == 0 ? 0 : 1;
          row.left = dy % 2 == 0 ? 0 : 2;
          row.dy = dy;
          row.dx = dx;
          row.flip = flip;
          rows.push_back(row);
        }
      }
    }
    shape.rows = static_cast<int64_t>(rows.size());
    ExpectAsReference(shape, x, rows, /*resized=*/false);
  }
}

TEST_P(ImageRowsContractTest, BoxesResizedTranslatedAndErased) {
  for (const int64_t channels : {1, 3}) {
    const ImageRowsShape shape{60, 11, 14, channels};
    constexpr int64_t kHeight = 30, kWidth = 25;
    const int64_t line_bytes = kWidth * channels;
    const Bytes x = Pixels(4 * kHeight * line_bytes);
    TestVector<ImageRow> rows(shape.rows);
    for (int64_t i = 0; i < shape.rows; ++i) {
      ImageRow& row = rows[i];
      // A region of one of the images, like a crop before resizing.
      const int64_t first_line = Below(10), first_column = Below(10);
      row.image = (i % 4 * kHeight + first_line) * line_bytes + first_column * channels;
      row.line_bytes = line_bytes;
      row.in_height = 1 + Below(kHeight - first_line);
      row.in_width = 1 + Below(kWidth - first_column);
      row.top = Uniform(0, 0.9 * row.in_height);
      row.left = Uniform(0, 0.9 * row.in_width);
      row.box_height = Uniform(0.1, 1) * (row.in_height - row.top);
      row.box_width = Uniform(0.1, 1) * (row.in_width - row.left);
      row.flip = i % 2 == 0;
      if (i % 3 == 0) row.dy = Below(7) - 3;
      if (i % 3 == 1) row.dx = Below(7) - 3;
      if (i % 5 != 0) Erase(shape, row);
    }
    ExpectAsReference(shape, x, rows, /*resized=*/true);
  }
}

TEST_P(ImageRowsContractTest, LargeReductionAndEnlargement) {
  const ImageRowsShape small{2, 4, 5, 3}, large{1, 60, 70, 3};
  for (const ImageRowsShape& shape : {small, large}) {
    const int64_t height = shape.rows == 2 ? 90 : 6, width = shape.rows == 2 ? 70 : 5;
    TestVector<ImageRow> rows;
    for (int64_t i = 0; i < shape.rows; ++i) {
      ImageRow row;
      row.image = i * height * width * 3;
      row.line_bytes = width * 3;
      row.in_height = static_cast<int32_t>(height);
      row.in_width = static_cast<int32_t>(width);
      row.box_height = static_cast<double>(height);
      row.box_width = static_cast<double>(width);
      rows.push_back(row);
    }
    ExpectAsReference(shape, Pixels(shape.rows * height * width * 3), rows, /*resized=*/true);
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, ImageRowsContractTest, EveryKernelSet(), KernelSetName);

}  // namespace
}  // namespace muster::kernels
