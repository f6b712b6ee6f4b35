// Compares the convolution kernels, run on the host, with their definition.
#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "kernels/contract/typed_buffer.h"
#include "kernels/cuda/testing/on_host.h"

namespace muster::kernels {
namespace {

const ConvolutionKernels& Kernels() { return CudaConvolutionKernelsOnHost(); }

TEST(ColumnSumsTest, AddsUpEachColumn) {
  std::mt19937 random(3);
  for (const DataType type : kDataTypes) {
    for (const auto& [rows, columns] : {std::pair{1, 1}, {700, 3}, {33, 64}, {5, 200}, {2000, 8}}) {
      SCOPED_TRACE(testing::Message() << NameOf(type) << " " << rows << " by " << columns);
      const TypedBuffer x(type, rows * columns, random);
      const TestBuffer sums(columns);
      Kernels().column_sums(type, rows, columns, x.data(), sums.data());
      for (int c = 0; c < columns; ++c) {
        double sum = 0;
        for (int r = 0; r < rows; ++r) sum += double{x[r * columns + c]};
        ASSERT_NEAR(sums[c], sum, 1e-5 * rows) << c;
      }
    }
  }
}

TEST(ColumnSumsTest, ReturnsZeroWithoutRows) {
  const TestBuffer sums(37);
  Kernels().column_sums(DataType::kBfloat16, 0, 37, nullptr, sums.data());
  for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], 0.0f);
}

TEST(ApplyEpilogueTest, MatchesTheDefinition) {
  std::mt19937 random(4);
  for (const DataType sums_type : kDataTypes) {
    for (const DataType y_type : kDataTypes) {
      for (const int channels : {1, 7, 16, 132}) {
        for (int kind = 0; kind < 8 * 3; ++kind) {
          const int pixels = 9;
          const TypedBuffer sums(sums_type, pixels * channels, random);
          const TypedBuffer addend(y_type, pixels * channels, random);
          const TestBuffer scale(channels, random), shift(channels, random);
          const Epilogue epilogue = {.scale = (kind & 1) != 0 ? scale.data() : nullptr,
                                     .shift = (kind & 2) != 0 ? shift.data() : nullptr,
                                     .addend = (kind & 4) != 0 ? addend.data() : nullptr,
                                     .activation = static_cast<Activation>(kind / 8)};
          const TypedBuffer y(y_type, sums.size()), expected(y_type, sums.size());
          for (size_t i = 0; i < sums.size(); ++i) {
            double value = sums[i];
            if (epilogue.scale != nullptr) value *= scale[i % channels];
            if (epilogue.shift != nullptr) value += shift[i % channels];
            if (epilogue.addend != nullptr) value += addend[i];
            if (epilogue.activation != Activation::kNone) value = std::max(value, 0.0);
            if (epilogue.activation == Activation::kRelu6) value = std::min(value, 6.0);
            expected.Set(i, value);
          }
          Kernels().apply_epilogue(pixels, channels, sums_type, sums.data(), epilogue, y_type,
                                   y.data());
          ExpectRounded(y, expected, "y");
          if (sums_type != y_type) continue;
          Kernels().apply_epilogue(pixels, channels, sums_type, sums.data(), epilogue, y_type,
                                   sums.data());
          ExpectSame(sums, y, "in place");
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster::kernels
