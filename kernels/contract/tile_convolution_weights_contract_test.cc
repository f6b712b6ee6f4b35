// Compares the tile convolution's gradient of the weights with reference::MakeConvolution for all
// instruction sets and operand types.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/convolution.h"
#include "kernels/cpu/convolution/dense_kernels.h"
#include "kernels/half.h"

namespace muster::kernels {
namespace {

// `values` as stored in `type`, in an array that ends with the last of them.
class Operand {
 public:
  Operand(DataType type, const TestBuffer& values) : bytes_(values.size() * SizeOf(type)) {
    for (size_t i = 0; i < values.size(); ++i) {
      StoreElement(type, double{values[i]}, bytes_.data(), static_cast<int64_t>(i));
    }
  }
  const void* data() const { return bytes_.data(); }

 private:
  std::vector<char> bytes_;
};

struct Gradients {
  TestBuffer dweights;  // in the panel layout
  TestBuffer dbias;
};

class TileConvolutionWeightsTest : public KernelContractTest {
 protected:
  const cpu::DenseKernels& dense() const {
    return cpu::DenseKernelsOf(static_cast<InstructionSet>(GetParam()));
  }
  static std::string Name(const TileConvolutionShape& s, DataType type, int parts) {
    return testing::PrintToString(std::vector<int64_t>{s.samples, s.height, s.width, s.in_channels,
                                                       s.out_channels, s.kernel, s.stride,
                                                       s.padding}) +
           " " + NameOf(type) + " parts " + std::to_string(parts);
  }

  TilePanels Panels(const TileConvolutionShape& shape) const {
    return PanelsOf(shape, dense().lanes);
  }
  std::vector<DataType> Types() const {
    if (!dense().bfloat16_dot) return {DataType::kFloat32};
    return {DataType::kFloat32, DataType::kBfloat16};
  }

  // Each part has its own scratch and dbias, initially NaN: parts run at the same time, so that no
  // two of them may write an element.
  Gradients Run(const TileConvolutionShape& shape, DataType type, const void* x, const void* dy,
                int parts) const {
    const size_t bytes = dense().tile_backward_weights_scratch_bytes(shape, type);
    Gradients gradients{TestBuffer(Panels(shape).elements()), TestBuffer(shape.out_channels)};
    for (int part = 0; part < parts; ++part) {
      const TestBuffer scratch(bytes / sizeof(float));
      TestBuffer dbias(shape.out_channels);
      dense().tile_backward_weights(shape, type, x, dy, gradients.dweights.data(), dbias.data(),
                                    scratch.data(), part, parts);
      for (int64_t c = 0; c < shape.out_channels; ++c) {
        if (std::isnan(dbias[c])) continue;
        EXPECT_TRUE(std::isnan(gradients.dbias[c])) << "two parts write dbias[" << c << "]";
        gradients.dbias[c] = dbias[c];
      }
    }
    return gradients;
  }

  // Canonical weights in the panel layout, with zeros in its padding.
  TestBuffer InPanels(const TileConvolutionShape& shape, const TestBuffer& canonical) const {
    const TilePanels panels = Panels(shape);
    TestBuffer weights(panels.elements());
    std::memset(weights.data(), 0, weights.size() * sizeof(float));
    for (int64_t o = 0; o < shape.out_channels; ++o) {
      for (int64_t i = 0; i < shape.in_channels; ++i) {
        for (int64_t tap = 0; tap < shape.taps(); ++tap) {
          weights[panels.offset(o / panels.full_width(), tap * shape.in_channels + i,
                                o % panels.full_width())] =
              canonical[(o * shape.in_channels + i) * shape.taps() + tap];
        }
      }
    }
    return weights;
  }

  Gradients Expected(const TileConvolutionShape& shape, DataType type, const void* x,
                     const void* dy) const {
    const auto convolution = reference::MakeConvolution(
        {shape.height, shape.width, shape.in_channels, shape.out_channels, shape.kernel,
         shape.stride, shape.padding},
        {.max_samples = shape.samples, .x_type = type, .y_type = type, .compute_type = type});
    TestBuffer canonical(convolution->weights_elements()), dbias(shape.out_channels);
    convolution->BackwardWeights(shape.samples, x, dy, canonical.data(), dbias.data(), nullptr);
    return {InPanels(shape, canonical), std::move(dbias)};
  }

  void ExpectReference(const TileConvolutionShape& shape) {
    const TestBuffer x(shape.samples * shape.height * shape.width * shape.in_channels, random_);
    const TestBuffer dy(shape.samples * shape.out_height() * shape.out_width() * shape.out_channels,
                        random_);
    for (const DataType type : Types()) {
      const Operand stored_x(type, x), stored_dy(type, dy);
      const Gradients expected = Expected(shape, type, stored_x.data(), stored_dy.data());
      const Gradients whole = Run(shape, type, stored_x.data(), stored_dy.data(), 1);
      SCOPED_TRACE(Name(shape, type, 1));
      ExpectClose(whole.dweights, expected.dweights, "dweights");
      ExpectClose(whole.dbias, expected.dbias, "dbias");
      for (const int parts : {2, 3}) {
        SCOPED_TRACE(Name(shape, type, parts));
        const Gradients divided = Run(shape, type, stored_x.data(), stored_dy.data(), parts);
        ExpectClose(divided.dweights, whole.dweights, "dweights", 0);
        ExpectClose(divided.dbias, whole.dbias, "dbias", 0);
      }
    }
  }
};

TEST_P(TileConvolutionWeightsTest, EveryKernelStrideAndPadding) {
  for (int64_t kernel = 1; kernel <= 7; ++kernel) {
    for (int64_t stride = 1; stride <= 3; ++stride) {
      for (const int64_t padding : {int64_t{0}, kernel / 2, kernel}) {
        TileConvolutionShape shape{3,           Draw(1, 9), Draw(1, 11), Draw(1, 20),
                                   Draw(1, 40), kernel,     stride,      padding};
        if (shape.height + 2 * padding < kernel) shape.height = kernel;
        if (shape.width + 2 * padding < kernel) shape.width = kernel;
        ExpectReference(shape);
      }
    }
  }
}

TEST_P(TileConvolutionWeightsTest, EveryImageSizeAndNumberOfSamples) {
  for (const int64_t height : {1, 2, 3, 4, 8, 9}) {
    for (const int64_t width : {1, 2, 7, 8, 11}) {
      for (const int64_t samples : {0, 1, 3, 40}) {
        ExpectReference({samples, height, width, 9, 18, 3, 1, 1});
      }
    }
  }
}

TEST_P(TileConvolutionWeightsTest, EveryNumberOfChannels) {
  for (const int64_t in : {1, 2, 3, 4, 5, 7, 8, 12, 13, 14, 15, 28, 29, 64}) {
    for (const int64_t out : {1, 8, 16, 17, 32, 33, 48, 100}) {
      ExpectReference({2, 5, 4, in, out, 3, 1, 1});
      ExpectReference({2, 5, 4, in, out, 1, 1, 0});
    }
  }
}

// Pixels are summed in blocks.
TEST_P(TileConvolutionWeightsTest, ManyPixels) {
  ExpectReference({2, 28, 28, 16, 40, 3, 1, 1});
  ExpectReference({3, 57, 57, 3, 20, 7, 2, 3});
  ExpectReference({2, 29, 29, 1, 32, 3, 1, 1});  // all taps in one tile
  ExpectReference({2, 40, 40, 1, 16, 3, 2, 0});
  ExpectReference({2, 31, 30, 3, 16, 3, 2, 1});
  ExpectReference({2, 33, 17, 8, 16, 5, 3, 4});
  ExpectReference({1, 6, 300, 5, 16, 3, 1, 1});  // rows longer than a block
  ExpectReference({2, 6, 300, 33, 16, 3, 2, 1});
  ExpectReference({2, 19, 23, 17, 96, 1, 2, 0});  // a shortcut
  ExpectReference({2, 28, 28, 24, 16, 1, 1, 0});
  ExpectReference({2, 28, 28, 12, 96, 1, 1, 0});
  ExpectReference({7, 9, 9, 12, 96, 1, 1, 0});
}

TEST_P(TileConvolutionWeightsTest, Linear) {
  for (const int64_t samples : {0, 1, 2, 7, 300, 515}) {
    ExpectReference({samples, 1, 1, 37, 10, 1, 1, 0});
    ExpectReference({samples, 1, 1, 130, 70, 1, 1, 0});
  }
}

// More channels than are laid out at a time.
TEST_P(TileConvolutionWeightsTest, ManyChannels) {
  ExpectReference({16, 4, 4, 700, 33, 1, 1, 0});
  ExpectReference({16, 4, 4, 500, 16, 3, 1, 1});
}

TEST_P(TileConvolutionWeightsTest, IsAccurateForSumsOfManyPixels) {
  const TileConvolutionShape shape{32, 56, 56, 2, 3, 1, 1, 0};
  TestBuffer x(shape.samples * shape.height * shape.width * 2, random_);
  TestBuffer dy(shape.samples * shape.height * shape.width * 3, random_);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::abs(x[i]);  // avoids cancellation
  for (size_t i = 0; i < dy.size(); ++i) dy[i] = std::abs(dy[i]);
  for (const DataType type : Types()) {
    const Operand stored_x(type, x), stored_dy(type, dy);
    const Gradients actual = Run(shape, type, stored_x.data(), stored_dy.data(), 1);
    const Gradients expected = Expected(shape, type, stored_x.data(), stored_dy.data());
    ExpectClose(actual.dweights, expected.dweights, "dweights", 2e-6);
    ExpectClose(actual.dbias, expected.dbias, "dbias", 2e-6);
  }
}

TEST_P(TileConvolutionWeightsTest, ScratchIsSufficientForFewerSamples) {
  for (int i = 0; i < 200; ++i) {
    TileConvolutionShape shape{Draw(1, 70), Draw(1, 20),
                               Draw(1, 20), Draw(1, 600),
                               16,          Draw(0, 1) == 0 ? 1 : 3,
                               Draw(1, 2),  0};
    shape.padding = shape.kernel / 2;
    for (const DataType type : Types()) {
      const auto bytes = [&] { return dense().tile_backward_weights_scratch_bytes(shape, type); };
      const size_t most = bytes();
      const int64_t most_samples = shape.samples;
      for (shape.samples = 0; shape.samples < most_samples; ++shape.samples) {
        ASSERT_LE(bytes(), most) << Name(shape, type, 1) << " of " << most_samples;
      }
    }
  }
}

TEST_P(TileConvolutionWeightsTest, NoBias) {
  const TileConvolutionShape shape{2, 4, 4, 8, 16, 3, 1, 1};
  const TestBuffer x(2 * 4 * 4 * 8, random_), dy(2 * 4 * 4 * 16, random_);
  TestBuffer dweights(Panels(shape).elements());
  const TestBuffer scratch(dense().tile_backward_weights_scratch_bytes(shape, DataType::kFloat32) /
                           sizeof(float));
  dense().tile_backward_weights(shape, DataType::kFloat32, x.data(), dy.data(), dweights.data(),
                                nullptr, scratch.data(), 0, 1);
  const Gradients expected = Expected(shape, DataType::kFloat32, x.data(), dy.data());
  ExpectClose(dweights, expected.dweights, "dweights");
}

INSTANTIATE_TEST_SUITE_P(, TileConvolutionWeightsTest, EveryInstructionSet(), KernelSetName);

}  // namespace
}  // namespace muster::kernels
