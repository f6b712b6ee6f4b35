// Compares every kernel set's pooling with the reference, and the reference with its definition and
// finite differences.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/pooling.h"

namespace muster::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename Shape>
size_t InputElements(const Shape& shape) {
  return shape.samples * shape.height * shape.width * shape.channels;
}

template <typename Shape>
size_t OutputElements(const Shape& shape) {
  return shape.samples * shape.out_height() * shape.out_width() * shape.channels;
}

std::string Name(const PoolShape& shape) {
  return testing::PrintToString(std::vector<int64_t>{shape.samples, shape.height, shape.width,
                                                     shape.channels, shape.relu, shape.kernel,
                                                     shape.stride, shape.padding});
}

std::string Name(const AveragePoolShape& shape) {
  return testing::PrintToString(std::vector<int64_t>{shape.samples, shape.height, shape.width,
                                                     shape.channels, shape.kernel_height,
                                                     shape.kernel_width, shape.stride});
}

class PoolingContractTest : public KernelContractTest {
 protected:
  // x is rounded to each type.
  void ExpectLikeReference(PoolShape shape, const TestBuffer& x) {
    SCOPED_TRACE(Name(shape));
    for (const DataType type : kDataTypes) {
      shape.type = type;
      const TypedBuffer rounded(type, x.size());
      for (size_t i = 0; i < x.size(); ++i) rounded.Set(i, x[i]);
      ExpectLikeReference(shape, rounded);
    }
  }

  void ExpectLikeReference(const PoolShape& shape, const TypedBuffer& x) {
    const DataType type = shape.type;
    SCOPED_TRACE(NameOf(type));
    const size_t count = OutputElements(shape);
    TypedBuffer y(type, count), expected_y(type, count), dy(type, count, random_);
    Bytes choice(count), expected_choice(count);
    kernels().max_pool_forward(shape, x.data(), y.data(), choice.data());
    reference().max_pool_forward(shape, x.data(), expected_y.data(), expected_choice.data());
    ExpectSame(y, expected_y, "y");
    EXPECT_EQ(choice, expected_choice);
    TypedBuffer again(type, count);
    kernels().max_pool_forward(shape, x.data(), again.data(), nullptr);
    ExpectSame(again, expected_y, "y without choice");
    TypedBuffer dx(type, x.size()), expected_dx(type, x.size());
    kernels().max_pool_backward(shape, dy.data(), choice.data(), dx.data());
    reference().max_pool_backward(shape, dy.data(), choice.data(), expected_dx.data());
    ExpectRounded(dx, expected_dx, "dx", 1e-6);
  }

  void ExpectLikeReference(AveragePoolShape shape) {
    for (const DataType type : kDataTypes) {
      SCOPED_TRACE(Name(shape) + NameOf(type));
      shape.type = type;
      TypedBuffer x(type, InputElements(shape), random_);
      TypedBuffer y(type, OutputElements(shape)), expected_y(type, y.size());
      kernels().average_pool_forward(shape, x.data(), y.data());
      reference().average_pool_forward(shape, x.data(), expected_y.data());
      ExpectRounded(y, expected_y, "y", 1e-6);
      TypedBuffer dy(type, y.size(), random_), dx(type, x.size()), expected_dx(type, x.size());
      kernels().average_pool_backward(shape, dy.data(), dx.data());
      reference().average_pool_backward(shape, dy.data(), expected_dx.data());
      ExpectRounded(dx, expected_dx, "dx", 1e-6);
    }
  }

  int64_t DrawChannels() {
    constexpr int64_t kChannels[] = {1, 3, 16, 17, 64, 100};
    return kChannels[Draw(0, std::size(kChannels) - 1)];
  }
};

TEST_P(PoolingContractTest, MaxPool) {
  const PoolShape sizes[] = {
      {4, 6, 8, 32},
      {2, 5, 7, 21},
      {1, 2, 2, 64},
      {3, 3, 2, 1},
      {0, 4, 4, 8},
      {.samples = 2, .height = 16, .width = 12, .channels = 64, .kernel = 3, .padding = 1},
      {.samples = 2, .height = 9, .width = 7, .channels = 100, .kernel = 3, .padding = 1},
      {.samples = 3, .height = 1, .width = 1, .channels = 17, .kernel = 3, .padding = 1},
      {.samples = 1, .height = 7, .width = 5, .channels = 3, .kernel = 3, .stride = 1},
      {.samples = 2, .height = 8, .width = 11, .channels = 17, .kernel = 2, .stride = 3},
      {.samples = 2, .height = 4, .width = 4, .channels = 19, .kernel = 2, .padding = 1},
      {.samples = 1, .height = 15, .width = 16, .channels = 5, .kernel = 15, .stride = 1},
      {.samples = 0, .height = 7, .width = 7, .channels = 64, .kernel = 3, .padding = 1},
  };
  for (PoolShape shape : sizes) {
    for (const bool relu : {false, true}) {
      shape.relu = relu;
      TestBuffer x(InputElements(shape), random_);
      // Equal values: the first one is chosen.
      for (size_t i = 0; i < x.size(); ++i) x[i] = std::round(x[i]);
      ExpectLikeReference(shape, x);
    }
  }
}

TEST_P(PoolingContractTest, MaxPoolOfRandomShapes) {
  for (int i = 0; i < 50; ++i) {
    PoolShape shape{.samples = Draw(0, 3), .channels = DrawChannels(), .relu = Draw(0, 1) == 1};
    shape.kernel = Draw(1, 5);
    shape.stride = Draw(1, 4);
    shape.padding = Draw(0, shape.kernel / 2);
    const int64_t smallest = std::max<int64_t>(1, shape.kernel - 2 * shape.padding);
    shape.height = Draw(smallest, smallest + 9);
    shape.width = Draw(smallest, smallest + 9);
    ExpectLikeReference(shape, TestBuffer(InputElements(shape), random_));
  }
}

TEST_P(PoolingContractTest, AveragePool) {
  const AveragePoolShape sizes[] = {{2, 7, 7, 512, 7, 7, 1},  {3, 1, 1, 17, 1, 1, 1},
                                    {2, 9, 4, 100, 9, 4, 1},  {1, 6, 7, 3, 2, 2, 2},
                                    {2, 8, 9, 64, 3, 2, 1},   {0, 4, 4, 8, 4, 4, 1},
                                    {1, 56, 57, 1, 56, 57, 5}};
  for (const AveragePoolShape& shape : sizes) ExpectLikeReference(shape);
}

TEST_P(PoolingContractTest, AveragePoolOfRandomShapes) {
  for (int i = 0; i < 50; ++i) {
    AveragePoolShape shape{.samples = Draw(0, 3), .channels = DrawChannels(), .stride = Draw(1, 4)};
    shape.kernel_height = Draw(1, 4);
    shape.kernel_width = Draw(1, 4);
    shape.height = Draw(shape.kernel_height, 11);
    shape.width = Draw(shape.kernel_width, 11);
    ExpectLikeReference(shape);
  }
}

// As in PyTorch, NaN is the maximum of its window, the last one of several.
TEST_P(PoolingContractTest, PropagatesNan) {
  for (const KernelTable* table : {&kernels(), &reference()}) {
    SCOPED_TRACE(table->name);
    for (const int64_t channels : {1, 19}) {
      for (const bool relu : {false, true}) {
        for (PoolShape shape :
             {PoolShape{.samples = 1, .height = 4, .width = 4},
              PoolShape{.samples = 1, .height = 4, .width = 4, .kernel = 3, .stride = 1}}) {
          shape.channels = channels;
          shape.relu = relu;
          for (const DataType type : kDataTypes) {
            shape.type = type;
            TypedBuffer x(type, InputElements(shape), random_), y(type, OutputElements(shape));
            Bytes choice(y.size());
            const int64_t c = channels - 1;
            x.Set(channels + c, kNan);  // pixels (0, 1) and (1, 0)
            x.Set(4 * channels + c, kNan);
            x.Set(5 * channels + c, 100);
            table->max_pool_forward(shape, x.data(), y.data(), choice.data());
            EXPECT_TRUE(std::isnan(y[c]));
            EXPECT_EQ(choice[c], shape.kernel);  // the first pixel of the second row
            if (shape.kernel == 2) EXPECT_FALSE(std::isnan(y[channels + c]));
          }
        }
      }
    }
  }
}

TEST_P(PoolingContractTest, PaddingIsNeverTheMaximum) {
  const PoolShape shape{
      .samples = 1, .height = 2, .width = 2, .channels = 17, .kernel = 3, .padding = 1};
  for (const float value : {-5.0f, -std::numeric_limits<float>::infinity()}) {
    TestBuffer x(InputElements(shape)), y(OutputElements(shape));
    Bytes choice(y.size());
    std::fill_n(x.data(), x.size(), value);
    for (const KernelTable* table : {&kernels(), &reference()}) {
      table->max_pool_forward(shape, x.data(), y.data(), choice.data());
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(y[i], value);
        EXPECT_EQ(choice[i], 4);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, PoolingContractTest, EveryKernelSet(), KernelSetName);

// Calls visit(element of y, element of x) for each pixel under each window.
template <typename Visit>
void ForEachCell(const AveragePoolShape& shape, int64_t padding, const Visit& visit) {
  const int64_t out_height = (shape.height + 2 * padding - shape.kernel_height) / shape.stride + 1;
  const int64_t out_width = (shape.width + 2 * padding - shape.kernel_width) / shape.stride + 1;
  int64_t out = 0;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    for (int64_t oh = 0; oh < out_height; ++oh) {
      for (int64_t ow = 0; ow < out_width; ++ow) {
        for (int64_t c = 0; c < shape.channels; ++c, ++out) {
          for (int64_t h = 0; h < shape.height; ++h) {
            for (int64_t w = 0; w < shape.width; ++w) {
              const int64_t r = h + padding - oh * shape.stride;
              const int64_t s = w + padding - ow * shape.stride;
              if (r < 0 || s < 0 || r >= shape.kernel_height || s >= shape.kernel_width) continue;
              visit(out, ((sample * shape.height + h) * shape.width + w) * shape.channels + c);
            }
          }
        }
      }
    }
  }
}

TEST(ReferenceKernelsTest, MaxPoolGradientsMatchFiniteDifferences) {
  std::mt19937 random(5);
  for (PoolShape shape :
       {PoolShape{2, 5, 6, 3}, PoolShape{2, 7, 5, 3, false, 3, 2, 1},
        PoolShape{1, 6, 6, 2, false, 3, 1, 1}, PoolShape{1, 9, 7, 2, false, 2, 3, 0}}) {
    for (const bool relu : {false, true}) {
      shape.relu = relu;
      SCOPED_TRACE(Name(shape));
      TestBuffer x(InputElements(shape), random), y(OutputElements(shape)), dx(x.size());
      TestBuffer dy(y.size(), random);
      Bytes choice(y.size());
      ReferenceKernels().max_pool_forward(shape, x.data(), y.data(), choice.data());
      ReferenceKernels().max_pool_backward(shape, dy.data(), choice.data(), dx.data());
      const auto forward = [&](const Doubles& values) {
        Doubles largest(y.size(), relu ? 0.0 : -std::numeric_limits<double>::infinity());
        ForEachCell({shape.samples, shape.height, shape.width, shape.channels, shape.kernel,
                     shape.kernel, shape.stride},
                    shape.padding, [&](int64_t out, int64_t in) {
                      largest[out] = std::max(largest[out], values[in]);
                    });
        return largest;
      };
      const Doubles expected = forward(ToDoubles(x));
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], expected[i]);
      ExpectGradient(forward, x, dy, dx, random, "dx");
    }
  }
}

TEST(ReferenceKernelsTest, AveragePoolGradientsMatchFiniteDifferences) {
  std::mt19937 random(6);
  for (const AveragePoolShape& shape :
       {AveragePoolShape{2, 5, 6, 3, 5, 6, 1}, AveragePoolShape{2, 7, 5, 3, 2, 3, 2},
        AveragePoolShape{1, 6, 6, 2, 2, 2, 3}}) {
    SCOPED_TRACE(Name(shape));
    TestBuffer x(InputElements(shape), random), y(OutputElements(shape)), dx(x.size());
    TestBuffer dy(y.size(), random);
    ReferenceKernels().average_pool_forward(shape, x.data(), y.data());
    ReferenceKernels().average_pool_backward(shape, dy.data(), dx.data());
    const auto forward = [&](const Doubles& values) {
      Doubles sums(y.size(), 0.0);
      ForEachCell(shape, 0, [&](int64_t out, int64_t in) {
        sums[out] += values[in] / static_cast<double>(shape.kernel_height * shape.kernel_width);
      });
      return sums;
    };
    const Doubles expected = forward(ToDoubles(x));
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-6);
    ExpectGradient(forward, x, dy, dx, random, "dx");
  }
}

}  // namespace
}  // namespace muster::kernels
