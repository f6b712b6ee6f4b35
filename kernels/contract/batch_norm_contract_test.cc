// Compares every kernel set's batch norm with the reference, and the reference with its definition
// and finite differences.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/batch_norm.h"
#include "kernels/contract/kernel_contract.h"

namespace muster::kernels {
namespace {

constexpr double kEpsilon = 1e-5;

constexpr std::pair<Activation, bool> kFusions[] = {{Activation::kNone, false},
                                                    {Activation::kRelu, false},
                                                    {Activation::kRelu6, false},
                                                    {Activation::kRelu, true}};

std::vector<BatchNormShape> BatchNormShapes() {
  std::vector<BatchNormShape> shapes;
  const BatchNormShape sizes[] = {{64, 4, 4, 32}, {3, 7, 5, 19},   {1, 2, 3, 64},   {9, 1, 1, 130},
                                  {5, 9, 8, 3},   {1, 1, 7, 16},   {40, 5, 5, 8},   {2, 3, 3, 100},
                                  {3, 6, 6, 24},  {1, 2, 2, 2047}, {1, 13, 20, 96}, {30, 3, 2, 1},
                                  {2, 5, 3, 17},  {5, 1, 1, 1280}};
  for (BatchNormShape shape : sizes) {
    for (const auto& [activation, pool] : kFusions) {
      if (pool && (shape.height < 2 || shape.width < 2)) continue;
      shape.activation = activation;
      shape.pool = pool;
      shapes.push_back(shape);
    }
  }
  return shapes;
}

// The shapes in float32 and, alternating, in one of the other types.
std::vector<BatchNormShape> TypedShapes() {
  std::vector<BatchNormShape> shapes = BatchNormShapes();
  const size_t count = shapes.size();
  for (size_t i = 0; i < count; ++i) {
    shapes.push_back(shapes[i]);
    shapes.back().type = i % 2 == 0 ? DataType::kBfloat16 : DataType::kFloat16;
  }
  return shapes;
}

std::string Name(const BatchNormShape& shape) {
  return testing::PrintToString(
             std::vector<int64_t>{shape.samples, shape.height, shape.width, shape.channels,
                                  static_cast<int64_t>(shape.activation), shape.pool}) +
         NameOf(shape.type);
}

// Results of forward that backward needs.
struct BatchNormState {
  double pixels;
  TestBuffer mean, inverse_deviation, scale, shift;
  TypedBuffer y;
  Bytes choice;

  // With the statistics of x's own pixels, computed by the reference.
  BatchNormState(const BatchNormShape& shape, const void* x, const TestBuffer& gamma,
                 const TestBuffer& beta, const void* addend = nullptr)
      : BatchNormState(shape) {
    const KernelTable& table = ReferenceKernels();
    TestBuffer variance(shape.channels);
    table.batch_norm_statistics(shape, x, mean.data(), variance.data());
    for (int64_t c = 0; c < shape.channels; ++c) {
      inverse_deviation[c] = static_cast<float>(1 / std::sqrt(double{variance[c]} + kEpsilon));
      scale[c] = gamma[c] * inverse_deviation[c];
      shift[c] = beta[c] - mean[c] * scale[c];
    }
    table.batch_norm_apply(shape, x, scale.data(), shift.data(), {addend}, y.data(), choice.data());
  }

  // For the slice `shape` of a batch with the statistics of `whole`.
  BatchNormState(const BatchNormShape& shape, const void* x, const BatchNormState& whole)
      : BatchNormState(shape) {
    pixels = whole.pixels;
    mean = Moved(whole.mean, whole.mean, 0);
    inverse_deviation = Moved(whole.inverse_deviation, whole.mean, 0);
    scale = Moved(whole.scale, whole.mean, 0);
    shift = Moved(whole.shift, whole.mean, 0);
    ReferenceKernels().batch_norm_apply(shape, x, scale.data(), shift.data(), {}, y.data(),
                                        choice.data());
  }

  BatchNormGradient Gradient(const void* x, const void* dy, const void* from_y = nullptr) const {
    return {.x = x,
            .dy = dy,
            .y = from_y,
            .choice = choice.data(),
            .scale = scale.data(),
            .shift = shift.data(),
            .mean = mean.data(),
            .inverse_deviation = inverse_deviation.data(),
            .pixels = pixels};
  }

 private:
  explicit BatchNormState(const BatchNormShape& shape)
      : pixels(static_cast<double>(shape.pixels())),
        mean(shape.channels),
        inverse_deviation(shape.channels),
        scale(shape.channels),
        shift(shape.channels),
        y(shape.type, shape.out_pixels() * shape.channels),
        choice(y.size()) {}
};

// What both passes of backward write without pooling.
struct BatchNormBackwardResult {
  explicit BatchNormBackwardResult(const BatchNormShape& shape)
      : dgamma(shape.channels),
        dbeta(shape.channels),
        dz(shape.type, shape.pixels() * shape.channels),
        dx(shape.type, shape.pixels() * shape.channels) {}

  TestBuffer dgamma, dbeta;
  TypedBuffer dz, dx;
};

class BatchNormContractTest : public KernelContractTest {
 protected:
  void ExpectBackward(const BatchNormShape& shape, const BatchNormGradient& gradient,
                      const TypedBuffer& dy) {
    TestBuffer dgamma(shape.channels), expected_dgamma(shape.channels);
    TestBuffer dbeta(shape.channels), expected_dbeta(shape.channels);
    const TypedBuffer dz(shape.type, dy.size()), expected_dz(shape.type, dy.size());
    const auto if_possible = [&](const TypedBuffer& buffer) {
      return shape.pool ? nullptr : buffer.data();
    };
    reference().batch_norm_backward_parameters(shape, gradient, expected_dgamma.data(),
                                               expected_dbeta.data(), if_possible(expected_dz));
    for (void* to : {static_cast<void*>(nullptr), if_possible(dz)}) {
      kernels().batch_norm_backward_parameters(shape, gradient, dgamma.data(), dbeta.data(), to);
      ExpectClose(dgamma, expected_dgamma, "dgamma");
      ExpectClose(dbeta, expected_dbeta, "dbeta");
    }
    if (!shape.pool) ExpectSame(dz, expected_dz, "dz");

    const size_t count = shape.pixels() * shape.channels;
    const TypedBuffer dx(shape.type, count), expected_dx(shape.type, count);
    const auto backward_data = [&](const BatchNormShape& of, const BatchNormGradient& by,
                                   void* to) {
      kernels().batch_norm_backward_data(of, by, dgamma.data(), dbeta.data(), to);
    };
    backward_data(shape, gradient, dx.data());
    reference().batch_norm_backward_data(shape, gradient, dgamma.data(), dbeta.data(),
                                         expected_dx.data());
    ExpectRounded(dx, expected_dx, "dx", 2e-5);
    // dx overwriting x.
    const TypedBuffer over_x(shape.type, count);
    std::memcpy(over_x.data(), gradient.x, count * SizeOf(shape.type));
    BatchNormGradient moved = gradient;
    moved.x = over_x.data();
    backward_data(shape, moved, over_x.data());
    ExpectSame(over_x, dx, "dx overwriting x");
    if (shape.pool) return;
    // From dz, which overwrites dy.
    const TypedBuffer masked = dy;
    BatchNormShape linear = shape;
    linear.activation = Activation::kNone;
    moved = gradient;
    moved.dy = masked.data();
    kernels().batch_norm_backward_parameters(shape, moved, dgamma.data(), dbeta.data(),
                                             masked.data());
    ExpectSame(masked, expected_dz, "dz overwriting dy");
    backward_data(linear, moved, over_x.data());
    ExpectSame(over_x, dx, "dx from dz");
    if (gradient.y != nullptr || shape.activation == Activation::kNone) {
      ExpectSumOfGradients(shape, gradient, dy);
    }
  }

  // dy as the sum of two gradients, which is rounded as by Accumulate.
  void ExpectSumOfGradients(const BatchNormShape& shape, const BatchNormGradient& gradient,
                            const TypedBuffer& dy) {
    const TypedBuffer addend(shape.type, dy.size(), random_);
    const TypedBuffer sum = dy;
    kernels().accumulate(shape.type, dy.size(), addend.data(), sum.data());
    BatchNormGradient moved = gradient;
    moved.dy = sum.data();
    TestBuffer dgamma(shape.channels), expected_dgamma(shape.channels);
    TestBuffer dbeta(shape.channels), expected_dbeta(shape.channels);
    const TypedBuffer dz = dy, expected_dz(shape.type, dy.size());
    kernels().batch_norm_backward_parameters(shape, moved, expected_dgamma.data(),
                                             expected_dbeta.data(), expected_dz.data());
    moved.dy = dz.data();
    moved.dy_addend = addend.data();
    kernels().batch_norm_backward_parameters(shape, moved, dgamma.data(), dbeta.data(), dz.data());
    ExpectClose(dgamma, expected_dgamma, "dgamma of a sum", /*tolerance=*/0);
    ExpectClose(dbeta, expected_dbeta, "dbeta of a sum", /*tolerance=*/0);
    ExpectSame(dz, expected_dz, "dz of a sum");
    moved.dy = dy.data();
    const TypedBuffer reference_dz(shape.type, dy.size());
    reference().batch_norm_backward_parameters(shape, moved, expected_dgamma.data(),
                                               expected_dbeta.data(), reference_dz.data());
    ExpectClose(dgamma, expected_dgamma, "dgamma of a sum");
    ExpectClose(dbeta, expected_dbeta, "dbeta of a sum");
    ExpectSame(dz, reference_dz, "dz of a sum");
  }
};

// Values far from zero, where a variance from plain sums of squares would suffer from cancellation.
TEST_P(BatchNormContractTest, Statistics) {
  for (const BatchNormShape& shape : TypedShapes()) {
    SCOPED_TRACE(Name(shape));
    TypedBuffer x(shape.type, shape.pixels() * shape.channels, random_);
    for (size_t i = 0; i < x.size(); ++i) x.Set(i, x[i] + 1000.0f * static_cast<float>(i % 3));
    TestBuffer mean(shape.channels), expected_mean(shape.channels);
    TestBuffer variance(shape.channels), expected_variance(shape.channels);
    kernels().batch_norm_statistics(shape, x.data(), mean.data(), variance.data());
    reference().batch_norm_statistics(shape, x.data(), expected_mean.data(),
                                      expected_variance.data());
    ExpectClose(mean, expected_mean, "mean");
    ExpectClose(variance, expected_variance, "variance");
  }
}

// The arrays that BatchNormPrepare writes.
struct PreparedArrays {
  explicit PreparedArrays(const TestBuffer& running)
      : mean(running.size()),
        inverse_deviation(running.size()),
        scale(running.size()),
        shift(running.size()),
        running_mean(Moved(running, running, 0)),
        running_variance(Moved(running, running, 1)) {}

  TestBuffer mean, inverse_deviation, scale, shift, running_mean, running_variance;
};

// Two calls, since a call could leave memory that the next one uses in another state.
TEST_P(BatchNormContractTest, PreparesLikeSeparateSteps) {
  for (const BatchNormShape& shape : TypedShapes()) {
    SCOPED_TRACE(Name(shape));
    const TypedBuffer x(shape.type, shape.pixels() * shape.channels, random_);
    const TestBuffer gamma(shape.channels, random_), beta(shape.channels, random_);
    const TestBuffer running(shape.channels, random_);
    for (const float is_active : {1.0f, 0.0f}) {
      const auto active = Stored(is_active), factor = Stored(1.25f);
      const PreparedArrays expected(running);
      const TestBuffer& variance = expected.inverse_deviation;
      kernels().batch_norm_statistics(shape, x.data(), expected.mean.data(), variance.data());
      kernels().batch_norm_running({.channels = shape.channels,
                                    .pixels = static_cast<double>(shape.pixels()),
                                    .momentum = 0.25},
                                   active.data(), expected.mean.data(), variance.data(),
                                   expected.running_mean.data(), expected.running_variance.data());
      kernels().batch_norm_scale({.channels = shape.channels, .epsilon = 0.01}, factor.data(),
                                 expected.mean.data(), variance.data(), gamma.data(), beta.data(),
                                 /*bias=*/nullptr, variance.data(), expected.scale.data(),
                                 expected.shift.data());
      for (int call = 0; call < 2; ++call) {
        const PreparedArrays actual(running);
        kernels().batch_norm_prepare(shape, x.data(),
                                     {.epsilon = 0.01,
                                      .momentum = 0.25,
                                      .factor = factor.data(),
                                      .active = active.data(),
                                      .gamma = gamma.data(),
                                      .beta = beta.data(),
                                      .mean = actual.mean.data(),
                                      .inverse_deviation = actual.inverse_deviation.data(),
                                      .scale = actual.scale.data(),
                                      .shift = actual.shift.data(),
                                      .running_mean = actual.running_mean.data(),
                                      .running_variance = actual.running_variance.data()});
        constexpr double kExactly = 0;
        ExpectClose(actual.mean, expected.mean, "mean", kExactly);
        ExpectClose(actual.inverse_deviation, variance, "inverse deviation", kExactly);
        ExpectClose(actual.scale, expected.scale, "scale", kExactly);
        ExpectClose(actual.shift, expected.shift, "shift", kExactly);
        ExpectClose(actual.running_mean, expected.running_mean, "running mean", kExactly);
        ExpectClose(actual.running_variance, expected.running_variance, "running variance",
                    kExactly);
      }
    }
  }
}

// A large gamma, so that ReLU6's upper bound has an effect.
TestBuffer DrawGamma(const BatchNormShape& shape, std::mt19937& random) {
  TestBuffer gamma(shape.channels, random);
  for (int64_t c = 0; c < shape.channels; ++c) gamma[c] *= 5;
  return gamma;
}

TEST_P(BatchNormContractTest, Forward) {
  for (const BatchNormShape& shape : TypedShapes()) {
    SCOPED_TRACE(Name(shape));
    const size_t count = shape.pixels() * shape.channels;
    const TypedBuffer x(shape.type, count, random_), addend(shape.type, count, random_);
    const TestBuffer gamma = DrawGamma(shape, random_), beta(shape.channels, random_);
    for (const void* sum :
         {static_cast<const void*>(nullptr), static_cast<const void*>(addend.data())}) {
      if (sum != nullptr && shape.pool) continue;
      const BatchNormState state(shape, x.data(), gamma, beta, sum);
      const TypedBuffer y(shape.type, state.y.size());
      Bytes choice(y.size());
      const auto apply = [&](const void* from, const void* with, void* to) {
        kernels().batch_norm_apply(shape, from, state.scale.data(), state.shift.data(), {with}, to,
                                   choice.data());
      };
      apply(x.data(), sum, y.data());
      ExpectRounded(y, state.y, "y");
      if (shape.pool) {
        EXPECT_EQ(choice, state.choice);
        continue;
      }
      const TypedBuffer over_x = x;
      apply(over_x.data(), sum, over_x.data());
      ExpectSame(over_x, y, "y overwriting x");
      if (sum == nullptr) continue;
      const TypedBuffer over_addend = addend;
      apply(x.data(), over_addend.data(), over_addend.data());
      ExpectSame(over_addend, y, "y overwriting the addend");
    }
  }
}

// The addend of another batch norm, whose values are not rounded before the sum.
TEST_P(BatchNormContractTest, ForwardWithNormalizedAddend) {
  for (const BatchNormShape& shape : TypedShapes()) {
    if (shape.pool) continue;
    SCOPED_TRACE(Name(shape));
    const size_t count = shape.pixels() * shape.channels;
    const TypedBuffer x(shape.type, count, random_), addend(shape.type, count, random_);
    std::vector<TestBuffer> arrays;
    for (int i = 0; i < 4; ++i) arrays.emplace_back(shape.channels, random_);
    const auto apply = [&](const KernelTable& table, const TypedBuffer& with,
                           const TypedBuffer& to) {
      table.batch_norm_apply(shape, x.data(), arrays[0].data(), arrays[1].data(),
                             {with.data(), arrays[2].data(), arrays[3].data()}, to.data(), nullptr);
    };
    const TypedBuffer y(shape.type, count), expected(shape.type, count);
    apply(kernels(), addend, y);
    apply(reference(), addend, expected);
    ExpectRounded(y, expected, "y");
    const TypedBuffer over_addend = addend;
    apply(kernels(), over_addend, over_addend);
    ExpectSame(over_addend, y, "y overwriting the addend");
  }
}

// With the mask computed from x, and with the mask of y.
TEST_P(BatchNormContractTest, Backward) {
  for (const BatchNormShape& shape : TypedShapes()) {
    SCOPED_TRACE(Name(shape));
    const size_t count = shape.pixels() * shape.channels;
    const TypedBuffer x(shape.type, count, random_), addend(shape.type, count, random_);
    const TestBuffer gamma = DrawGamma(shape, random_), beta(shape.channels, random_);
    for (const bool from_y : {false, true}) {
      if (from_y && shape.pool) continue;
      const BatchNormState state(shape, x.data(), gamma, beta, from_y ? addend.data() : nullptr);
      const TypedBuffer dy(shape.type, state.y.size(), random_);
      const BatchNormGradient gradient =
          state.Gradient(x.data(), dy.data(), from_y ? state.y.data() : nullptr);
      ExpectBackward(shape, gradient, dy);
    }
  }
}

// Both passes of backward with the mask that forward wrote give exactly the results of those with
// y.
TEST_P(BatchNormContractTest, MaskReplacesOutput) {
  for (const BatchNormShape& shape : TypedShapes()) {
    const size_t mask_bytes = kernels().batch_norm_mask_bytes(shape);
    if (mask_bytes == 0) continue;
    SCOPED_TRACE(Name(shape));
    const size_t count = shape.pixels() * shape.channels;
    const TypedBuffer x(shape.type, count, random_), addend(shape.type, count, random_);
    const TestBuffer gamma = DrawGamma(shape, random_), beta(shape.channels, random_);
    const BatchNormState state(shape, x.data(), gamma, beta, addend.data());
    const TypedBuffer y(shape.type, count), dy(shape.type, count, random_);
    const TypedBuffer dy_addend(shape.type, count, random_);
    Bytes mask(mask_bytes);
    kernels().batch_norm_apply(shape, x.data(), state.scale.data(), state.shift.data(),
                               {addend.data()}, y.data(), mask.data());
    ExpectRounded(y, state.y, "y");
    const auto backward = [&](const BatchNormGradient& gradient) {
      BatchNormBackwardResult result(shape);
      kernels().batch_norm_backward_parameters(shape, gradient, result.dgamma.data(),
                                               result.dbeta.data(), result.dz.data());
      BatchNormGradient only_dy = gradient;
      only_dy.dy_addend = nullptr;
      kernels().batch_norm_backward_data(shape, only_dy, result.dgamma.data(), result.dbeta.data(),
                                         result.dx.data());
      return result;
    };
    BatchNormGradient gradient = state.Gradient(x.data(), dy.data(), y.data());
    gradient.dy_addend = dy_addend.data();
    const BatchNormBackwardResult expected = backward(gradient);
    gradient.y = nullptr;
    gradient.mask = mask.data();
    const BatchNormBackwardResult actual = backward(gradient);
    ExpectClose(actual.dgamma, expected.dgamma, "dgamma", /*tolerance=*/0);
    ExpectClose(actual.dbeta, expected.dbeta, "dbeta", /*tolerance=*/0);
    ExpectSame(actual.dz, expected.dz, "dz");
    ExpectSame(actual.dx, expected.dx, "dx");
  }
}

// An addend of dy at every other pixel, or every third, gives exactly the results of one with zeros
// between.
TEST_P(BatchNormContractTest, AddsStridedGradient) {
  for (const BatchNormShape& shape : TypedShapes()) {
    const size_t mask_bytes = kernels().batch_norm_mask_bytes(shape);
    if (mask_bytes == 0) continue;
    SCOPED_TRACE(Name(shape));
    const size_t count = shape.pixels() * shape.channels;
    const TypedBuffer x(shape.type, count, random_), addend(shape.type, count, random_);
    const TypedBuffer dy(shape.type, count, random_), y(shape.type, count);
    const TestBuffer gamma = DrawGamma(shape, random_), beta(shape.channels, random_);
    const BatchNormState state(shape, x.data(), gamma, beta, addend.data());
    Bytes mask(mask_bytes);
    kernels().batch_norm_apply(shape, x.data(), state.scale.data(), state.shift.data(),
                               {addend.data()}, y.data(), mask.data());
    for (const int64_t stride : {2, 3}) {
      const int64_t rows = (shape.height + stride - 1) / stride;
      const int64_t columns = (shape.width + stride - 1) / stride;
      const TypedBuffer strided(shape.type, shape.samples * rows * columns * shape.channels,
                                random_);
      const TypedBuffer whole(shape.type, count);
      for (size_t i = 0; i < count; ++i) whole.Set(i, 0);
      for (size_t i = 0; i < strided.size(); ++i) {
        const int64_t pixel = static_cast<int64_t>(i) / shape.channels;
        const int64_t w = pixel % columns * stride, h = pixel / columns % rows * stride;
        const int64_t sample = pixel / columns / rows;
        const int64_t to = (sample * shape.height + h) * shape.width + w;
        whole.Set(to * shape.channels + static_cast<int64_t>(i) % shape.channels, strided[i]);
      }
      const auto backward = [&](const KernelTable& table, const TypedBuffer& dy_addend,
                                int64_t dy_addend_stride, const uint8_t* from_mask,
                                const void* from_y) {
        BatchNormBackwardResult result(shape);
        BatchNormGradient gradient = state.Gradient(x.data(), dy.data(), from_y);
        gradient.mask = from_mask;
        gradient.dy_addend = dy_addend.data();
        gradient.dy_addend_stride = dy_addend_stride;
        table.batch_norm_backward_parameters(shape, gradient, result.dgamma.data(),
                                             result.dbeta.data(), result.dz.data());
        return result;
      };
      const auto actual = backward(kernels(), strided, stride, mask.data(), nullptr);
      const auto expected = backward(kernels(), whole, 1, mask.data(), nullptr);
      ExpectClose(actual.dgamma, expected.dgamma, "dgamma", /*tolerance=*/0);
      ExpectClose(actual.dbeta, expected.dbeta, "dbeta", /*tolerance=*/0);
      ExpectSame(actual.dz, expected.dz, "dz");
      // The reference derives the mask from y.
      const auto by_reference = backward(reference(), strided, stride, nullptr, y.data());
      ExpectClose(actual.dgamma, by_reference.dgamma, "dgamma");
      ExpectClose(actual.dbeta, by_reference.dbeta, "dbeta");
      ExpectSame(actual.dz, by_reference.dz, "dz");
    }
  }
}

// The arrays that both passes of backward write for a shortcut.
struct ShortcutResult {
  explicit ShortcutResult(const BatchNormShape& shape)
      : dgamma(shape.channels),
        dbeta(shape.channels),
        dx(shape.type, shape.pixels() * shape.channels) {}

  TestBuffer dgamma, dbeta;
  TypedBuffer dx;
};

// Both passes of a sum and its shortcut's batch norm give the results of each one's own passes.
TEST_P(BatchNormContractTest, BackwardOfSumAndShortcut) {
  for (const BatchNormShape& shape : TypedShapes()) {
    if (shape.pool) continue;
    SCOPED_TRACE(Name(shape));
    const bool activated = shape.activation != Activation::kNone;
    const size_t count = shape.pixels() * shape.channels;
    const TypedBuffer x(shape.type, count, random_), shortcut_x(shape.type, count, random_);
    const TypedBuffer dy(shape.type, count, random_), dy_addend(shape.type, count, random_);
    const TestBuffer gamma = DrawGamma(shape, random_), beta(shape.channels, random_);
    const BatchNormState state(shape, x.data(), gamma, beta, shortcut_x.data());
    const BatchNormState shortcut(shape, shortcut_x.data(), gamma, beta);
    Bytes mask(kernels().batch_norm_mask_bytes(shape));
    const TypedBuffer y(shape.type, count);
    kernels().batch_norm_apply(shape, x.data(), state.scale.data(), state.shift.data(),
                               {shortcut_x.data()}, y.data(), mask.empty() ? nullptr : mask.data());
    // Runs both passes; where forward writes masks, with those and with y.
    const auto backward = [&](const KernelTable& table, const uint8_t* from_mask,
                              BatchNormBackwardResult& result, ShortcutResult& other) {
      BatchNormGradient gradient = state.Gradient(x.data(), dy.data(), state.y.data());
      if (from_mask != nullptr) gradient.y = nullptr;
      gradient.mask = from_mask;
      if (activated) gradient.dy_addend = dy_addend.data();
      gradient.shortcut = {.x = shortcut_x.data(),
                           .scale = shortcut.scale.data(),
                           .shift = shortcut.shift.data(),
                           .mean = shortcut.mean.data(),
                           .inverse_deviation = shortcut.inverse_deviation.data(),
                           .dgamma = other.dgamma.data(),
                           .dbeta = other.dbeta.data(),
                           .dx = other.dx.data()};
      table.batch_norm_backward_parameters(shape, gradient, result.dgamma.data(),
                                           result.dbeta.data(),
                                           activated ? result.dz.data() : nullptr);
      BatchNormShape linear = shape;
      linear.activation = Activation::kNone;
      gradient.dy_addend = nullptr;
      if (activated) gradient.dy = result.dz.data();
      table.batch_norm_backward_data(linear, gradient, result.dgamma.data(), result.dbeta.data(),
                                     result.dx.data());
      // Each dx overwriting its x.
      const TypedBuffer over_x = x, over_shortcut_x = shortcut_x;
      gradient.x = over_x.data();
      gradient.shortcut.x = gradient.shortcut.dx = over_shortcut_x.data();
      table.batch_norm_backward_data(linear, gradient, result.dgamma.data(), result.dbeta.data(),
                                     over_x.data());
      ExpectSame(over_x, result.dx, "dx overwriting x");
      ExpectSame(over_shortcut_x, other.dx, "dx of the shortcut overwriting its x");
    };
    BatchNormBackwardResult expected(shape);
    ShortcutResult expected_other(shape);
    backward(reference(), nullptr, expected, expected_other);
    std::vector<const uint8_t*> masks = {nullptr};
    if (!mask.empty()) masks.push_back(mask.data());
    for (const uint8_t* from_mask : masks) {
      BatchNormBackwardResult actual(shape);
      ShortcutResult actual_other(shape);
      backward(kernels(), from_mask, actual, actual_other);
      ExpectClose(actual.dgamma, expected.dgamma, "dgamma");
      ExpectClose(actual.dbeta, expected.dbeta, "dbeta");
      if (activated) ExpectSame(actual.dz, expected.dz, "dz");
      ExpectRounded(actual.dx, expected.dx, "dx", 2e-5);
      ExpectClose(actual_other.dgamma, expected_other.dgamma, "dgamma of the shortcut");
      ExpectClose(actual_other.dbeta, expected_other.dbeta, "dbeta of the shortcut");
      ExpectRounded(actual_other.dx, expected_other.dx, "dx of the shortcut", 2e-5);
    }
  }
}

// Shapes with pooling other than 2x2, in float32 and the other types.
std::vector<BatchNormShape> PoolShapes() {
  const BatchNormShape sizes[] = {
      {.samples = 2, .height = 9, .width = 7, .channels = 16, .pool_kernel = 3, .pool_padding = 1},
      {.samples = 3, .height = 8, .width = 10, .channels = 64, .pool_kernel = 3, .pool_padding = 1},
      {.samples = 2, .height = 6, .width = 5, .channels = 19, .pool_kernel = 3, .pool_padding = 1},
      {.samples = 1, .height = 5, .width = 8, .channels = 3, .pool_kernel = 3},
      {.samples = 3, .height = 1, .width = 1, .channels = 24, .pool_kernel = 3, .pool_padding = 1},
      {.samples = 2, .height = 6, .width = 7, .channels = 8, .pool_kernel = 3, .pool_stride = 1},
      {.samples = 2, .height = 8, .width = 11, .channels = 17, .pool_stride = 3},
      {.samples = 2, .height = 4, .width = 4, .channels = 40, .pool_padding = 1},
      {.samples = 1, .height = 16, .width = 17, .channels = 5, .pool_kernel = 15, .pool_stride = 1},
      {.samples = 1, .height = 3, .width = 4, .channels = 8, .pool_kernel = 1, .pool_stride = 1}};
  std::vector<BatchNormShape> shapes;
  for (BatchNormShape shape : sizes) {
    shape.activation = Activation::kRelu;
    shape.pool = true;
    for (const DataType type : kDataTypes) {
      shape.type = type;
      shapes.push_back(shape);
    }
  }
  return shapes;
}

std::string PoolName(const BatchNormShape& shape) {
  return Name(shape) + testing::PrintToString(std::vector<int64_t>{
                           shape.pool_kernel, shape.pool_stride, shape.pool_padding});
}

// The layer with pooling other than 2x2, by one table's forward and both passes of its backward.
struct PooledLayer {
  PooledLayer(const KernelTable& table, const BatchNormShape& shape, const TypedBuffer& x,
              const std::vector<TestBuffer>& arrays, const TypedBuffer& dy,
              const TypedBuffer* dy_addend)
      : choice(table.batch_norm_pool_bytes(shape)),
        y(shape.type, dy.size()),
        dz(shape.type, dy.size()),
        dx(shape.type, x.size()),
        dgamma(shape.channels),
        dbeta(shape.channels) {
    table.batch_norm_apply(shape, x.data(), arrays[0].data(), arrays[1].data(), {}, y.data(),
                           choice.data());
    BatchNormGradient gradient{.x = x.data(),
                               .dy = dy.data(),
                               .dy_addend = dy_addend == nullptr ? nullptr : dy_addend->data(),
                               .choice = choice.data(),
                               .scale = arrays[0].data(),
                               .shift = arrays[1].data(),
                               .mean = arrays[2].data(),
                               .inverse_deviation = arrays[3].data(),
                               .pixels = static_cast<double>(shape.pixels())};
    table.batch_norm_backward_parameters(shape, gradient, dgamma.data(), dbeta.data(),
                                         dy_addend == nullptr ? nullptr : dz.data());
    if (dy_addend != nullptr) gradient.dy = dz.data();
    gradient.dy_addend = nullptr;
    table.batch_norm_backward_data(shape, gradient, dgamma.data(), dbeta.data(), dx.data());
    // dx overwriting x.
    const TypedBuffer over_x = x;
    gradient.x = over_x.data();
    table.batch_norm_backward_data(shape, gradient, dgamma.data(), dbeta.data(), over_x.data());
    ExpectSame(over_x, dx, "dx overwriting x");
  }

  Bytes choice;
  TypedBuffer y, dz, dx;
  TestBuffer dgamma, dbeta;
};

TEST_P(BatchNormContractTest, Pool) {
  for (const BatchNormShape& shape : PoolShapes()) {
    if (kernels().batch_norm_pool_bytes(shape) == 0) continue;
    SCOPED_TRACE(PoolName(shape));
    const TypedBuffer x(shape.type, shape.pixels() * shape.channels, random_);
    const size_t outputs = shape.out_pixels() * shape.channels;
    const TypedBuffer dy(shape.type, outputs, random_), dy_addend(shape.type, outputs, random_);
    std::vector<TestBuffer> arrays;  // scales of both signs
    for (int i = 0; i < 4; ++i) arrays.emplace_back(shape.channels, random_);
    for (const TypedBuffer* addend : {static_cast<const TypedBuffer*>(nullptr), &dy_addend}) {
      const PooledLayer actual(kernels(), shape, x, arrays, dy, addend);
      const PooledLayer expected(reference(), shape, x, arrays, dy, addend);
      ExpectRounded(actual.y, expected.y, "y");
      ExpectClose(actual.dgamma, expected.dgamma, "dgamma");
      ExpectClose(actual.dbeta, expected.dbeta, "dbeta");
      ExpectRounded(actual.dx, expected.dx, "dx", 2e-5);
      if (addend != nullptr) ExpectSame(actual.dz, expected.dz, "dz");
      const TypedBuffer y(shape.type, outputs);
      kernels().batch_norm_apply(shape, x.data(), arrays[0].data(), arrays[1].data(), {}, y.data(),
                                 /*choice=*/nullptr);
      ExpectSame(y, actual.y, "y without choice");
    }
  }
}

// The first of equal maxima is chosen, and NaN is the maximum, as by MaxPoolForward.
TEST_P(BatchNormContractTest, PoolOfEqualValuesAndNan) {
  for (const KernelTable* table : {&kernels(), &reference()}) {
    for (BatchNormShape shape : PoolShapes()) {
      if (table->batch_norm_pool_bytes(shape) == 0) continue;
      SCOPED_TRACE(PoolName(shape));
      const TypedBuffer x(shape.type, shape.pixels() * shape.channels, random_);
      for (size_t i = 0; i < x.size(); ++i) {
        const double value = std::round(double{x[i]});
        x.Set(i, i % 29 == 5 ? std::numeric_limits<double>::quiet_NaN() : value);
      }
      const PoolShape pool{.samples = shape.samples,
                           .height = shape.height,
                           .width = shape.width,
                           .channels = shape.channels,
                           .relu = true,
                           .kernel = shape.pool_kernel,
                           .stride = shape.pool_stride,
                           .padding = shape.pool_padding,
                           .type = shape.type};
      const size_t outputs = shape.out_pixels() * shape.channels;
      std::vector<TestBuffer> arrays;
      for (const float value : {1.0f, 0.0f, 0.0f, 0.0f}) {  // y = x and dx = dy
        arrays.emplace_back(shape.channels);
        std::fill_n(arrays.back().data(), shape.channels, value);
      }
      const TypedBuffer y(shape.type, outputs), dx(shape.type, x.size());
      const TypedBuffer dy(shape.type, outputs, random_);
      Bytes index(outputs);
      reference().max_pool_forward(pool, x.data(), y.data(), index.data());
      reference().max_pool_backward(pool, dy.data(), index.data(), dx.data());
      Bytes choice(table->batch_norm_pool_bytes(shape));
      const TypedBuffer actual_y(shape.type, outputs), actual_dx(shape.type, x.size());
      table->batch_norm_apply(shape, x.data(), arrays[0].data(), arrays[1].data(), {},
                              actual_y.data(), choice.data());
      ExpectSame(actual_y, y, "y");
      const TypedBuffer zeros(shape.type, x.size());
      for (size_t i = 0; i < zeros.size(); ++i) zeros.Set(i, 0);
      table->batch_norm_backward_data(shape,
                                      {.x = zeros.data(),
                                       .dy = dy.data(),
                                       .choice = choice.data(),
                                       .scale = arrays[0].data(),
                                       .shift = arrays[1].data(),
                                       .mean = arrays[2].data(),
                                       .inverse_deviation = arrays[3].data(),
                                       .pixels = static_cast<double>(shape.pixels())},
                                      arrays[1].data(), arrays[1].data(), actual_dx.data());
      ExpectRounded(actual_dx, dx, "dx", 1e-6);
    }
  }
}

// Two ranks, the second possibly without samples: the shared statistics and sums give each rank its
// slice of the result of a single rank.
TEST_P(BatchNormContractTest, SharedStatisticsGiveSlicesOfTheWhole) {
  for (const auto& [activation, pool] : kFusions) {
    for (const int64_t first_samples : {3, 5}) {
      const BatchNormShape shape{5, 5, 4, 19, activation, pool};
      SCOPED_TRACE(Name(shape));
      TypedBuffer x(shape.type, shape.pixels() * shape.channels, random_);
      TestBuffer gamma(shape.channels, random_), beta(shape.channels, random_);
      const BatchNormState whole(shape, x.data(), gamma, beta);
      TypedBuffer dy(shape.type, whole.y.size(), random_);
      TestBuffer dgamma(shape.channels), dbeta(shape.channels);
      TypedBuffer expected_dx(shape.type, x.size());
      const BatchNormGradient gradient = whole.Gradient(x.data(), dy.data());
      reference().batch_norm_backward_parameters(shape, gradient, dgamma.data(), dbeta.data(),
                                                 nullptr);
      reference().batch_norm_backward_data(shape, gradient, dgamma.data(), dbeta.data(),
                                           expected_dx.data());
      for (const KernelTable* table : {&kernels(), &reference()}) {
        SCOPED_TRACE(table->name);
        TestBuffer dgamma_sum(shape.channels), dbeta_sum(shape.channels);
        TypedBuffer dx(shape.type, x.size());
        std::fill_n(dgamma_sum.data(), shape.channels, 0.0f);
        std::fill_n(dbeta_sum.data(), shape.channels, 0.0f);
        const auto for_each_slice = [&](const auto& visit) {
          for (const auto& [begin, end] :
               {std::pair(int64_t{0}, first_samples), {first_samples, 5}}) {
            BatchNormShape slice = shape;
            slice.samples = end - begin;
            const int64_t in = begin * shape.height * shape.width * shape.channels;
            const int64_t out = begin * shape.out_height() * shape.out_width() * shape.channels;
            const BatchNormState state(slice, x.at(in), whole);
            visit(slice, state.Gradient(x.at(in), dy.at(out)), dx.at(in));
          }
        };
        for_each_slice([&](const BatchNormShape& slice, const BatchNormGradient& gradient, void*) {
          TestBuffer slice_dgamma(shape.channels), slice_dbeta(shape.channels);
          table->batch_norm_backward_parameters(slice, gradient, slice_dgamma.data(),
                                                slice_dbeta.data(), nullptr);
          dgamma_sum = Moved(dgamma_sum, slice_dgamma, 1);
          dbeta_sum = Moved(dbeta_sum, slice_dbeta, 1);
        });
        ExpectClose(dgamma_sum, dgamma, "dgamma");
        ExpectClose(dbeta_sum, dbeta, "dbeta");
        for_each_slice(
            [&](const BatchNormShape& slice, const BatchNormGradient& gradient, void* slice_dx) {
              table->batch_norm_backward_data(slice, gradient, dgamma_sum.data(), dbeta_sum.data(),
                                              slice_dx);
            });
        ExpectRounded(dx, expected_dx, "dx", 2e-5);
      }
    }
  }
}

TEST_P(BatchNormContractTest, PropagatesNan) {
  for (const KernelTable* table : {&kernels(), &reference()}) {
    for (const auto& [activation, pool] : kFusions) {
      for (const DataType type : kDataTypes) {
        const BatchNormShape shape{1, 2, 2, 19, activation, pool, type};
        SCOPED_TRACE(Name(shape));
        TypedBuffer x(type, shape.pixels() * shape.channels, random_);
        TestBuffer ones(shape.channels);
        std::fill_n(ones.data(), ones.size(), 1.0f);
        TypedBuffer y(type, shape.out_pixels() * shape.channels);
        for (const int i : {2, 18}) x.Set(i, std::numeric_limits<float>::quiet_NaN());
        table->batch_norm_apply(shape, x.data(), ones.data(), ones.data(), {}, y.data(), nullptr);
        EXPECT_TRUE(std::isnan(y[2]));
        EXPECT_TRUE(std::isnan(y[18]));
        EXPECT_FALSE(std::isnan(y[17]));
        TestBuffer mean(shape.channels), variance(shape.channels);
        table->batch_norm_statistics(shape, x.data(), mean.data(), variance.data());
        for (const int c : {2, 18}) EXPECT_TRUE(std::isnan(mean[c]) && std::isnan(variance[c]));
        EXPECT_FALSE(std::isnan(variance[17]));
      }
    }
  }
}

TEST_P(BatchNormContractTest, ScaleAndRunningStatistics) {
  for (const int64_t channels : {1, 16, 37}) {
    for (const double pixels : {1.0, 2.0, 4096.0}) {
      const TestBuffer mean(channels, random_), gamma(channels, random_), beta(channels, random_);
      const TestBuffer bias(channels, random_);
      TestBuffer variance(channels, random_);
      for (int64_t c = 0; c < channels; ++c) variance[c] = variance[c] * variance[c];
      const BatchNormScaling scaling{.channels = channels, .epsilon = kEpsilon};
      const auto factor = Stored(1.25f), active = Stored(0.0f);
      const BatchNormMomentum momentum{.channels = channels, .pixels = pixels, .momentum = 0.3};
      // Runs one table on the same inputs.
      const auto run = [&](const KernelTable& table, bool biased, bool whole) {
        std::vector<TestBuffer> out;
        for (int i = 0; i < 5; ++i) out.emplace_back(channels);
        for (int64_t c = 0; c < channels; ++c) out[3][c] = 2, out[4][c] = 3;
        table.batch_norm_scale(scaling, whole ? nullptr : factor.data(), mean.data(),
                               variance.data(), gamma.data(), beta.data(),
                               biased ? bias.data() : nullptr, out[0].data(), out[1].data(),
                               out[2].data());
        table.batch_norm_running(momentum, nullptr, mean.data(), variance.data(), out[3].data(),
                                 out[4].data());
        return out;
      };
      for (const auto& [biased, whole] : {std::pair(false, true), {true, false}}) {
        const auto actual = run(kernels(), biased, whole);
        const auto expected = run(reference(), biased, whole);
        const char* const names[] = {"inverse deviation", "scale", "shift", "running mean",
                                     "running variance"};
        for (int i = 0; i < 5; ++i) ExpectClose(actual[i], expected[i], names[i], 1e-6);
        // A dropped branch does not update the running statistics.
        for (const KernelTable* table : {&kernels(), &reference()}) {
          table->batch_norm_running(momentum, active.data(), mean.data(), variance.data(),
                                    actual[3].data(), actual[4].data());
          for (int i = 3; i < 5; ++i) ExpectClose(actual[i], expected[i], names[i], 1e-6);
        }
      }
    }
  }
}

// The sums of two devices equal those of one device with the pixels of both; without pixels,
// nothing is written.
TEST_P(BatchNormContractTest, SumsStatisticsOverDevices) {
  constexpr double kPixels[] = {0, 1, 300};
  for (const int64_t channels : {1, 5, 16, 67}) {
    TestBuffer mean(channels, random_), variance(channels, random_);
    for (int64_t c = 0; c < channels; ++c) variance[c] = variance[c] * variance[c];
    // Mean of the other device, far away.
    const auto other_mean = [&](int64_t c) { return 100.0 + double{mean[c]}; };
    for (const double own : kPixels) {
      for (const double other : kPixels) {
        TestVector<double> sums(2 * channels + 1, -1), expected(2 * channels + 1, -1);
        // Without pixels, nothing is read.
        const float* const means = own > 0 ? mean.data() : nullptr;
        const float* const variances = own > 0 ? variance.data() : nullptr;
        kernels().batch_norm_to_sums(channels, own, means, variances, sums.data());
        reference().batch_norm_to_sums(channels, own, means, variances, expected.data());
        for (size_t i = 0; i < sums.size(); ++i) {
          EXPECT_NEAR(sums[i], expected[i], 1e-12 * (1 + std::abs(expected[i])));
        }
        for (int64_t c = 0; c < channels; ++c) {
          sums[c] += other * other_mean(c);
          sums[channels + c] += other * (1 + other_mean(c) * other_mean(c));
        }
        sums[2 * channels] += other;
        TestBuffer all_mean(channels), all_variance(channels);
        for (int64_t c = 0; c < channels; ++c) all_mean[c] = all_variance[c] = -7;
        kernels().batch_norm_from_sums(channels, sums.data(), all_mean.data(), all_variance.data());
        const double all = own + other;
        for (int64_t c = 0; c < channels; ++c) {
          if (all == 0) {
            EXPECT_EQ(all_mean[c], -7);
            EXPECT_EQ(all_variance[c], -7);
            continue;
          }
          const double middle = (own * double{mean[c]} + other * other_mean(c)) / all;
          const double own_spread = double{variance[c]} + std::pow(double{mean[c]} - middle, 2);
          const double other_spread = 1 + std::pow(other_mean(c) - middle, 2);
          const double spread = (own * own_spread + other * other_spread) / all;
          EXPECT_NEAR(all_mean[c], middle, 1e-6 * (1 + std::abs(middle)));
          EXPECT_NEAR(all_variance[c], spread, 1e-6 * (1 + spread));
        }
      }
    }
  }
}

// The number of pixels is known only to the device.
TEST_P(BatchNormContractTest, ReadsTheNumberOfPixelsFromDeviceMemory) {
  const BatchNormShape shape = {.samples = 2, .height = 3, .width = 3, .channels = 19};
  const int64_t elements = shape.pixels() * shape.channels;
  const auto pixels = Stored(50.0), none = Stored(0.0);
  const TestBuffer x(elements, random_), dy(elements, random_);
  std::vector<TestBuffer> arrays;
  for (int i = 0; i < 6; ++i) arrays.emplace_back(shape.channels, random_);
  const auto run = [&](double own, const double* shared) {
    std::vector<TestBuffer> out;
    out.emplace_back(elements);
    for (int i = 0; i < 2; ++i) {
      out.emplace_back(shape.channels);
      for (int64_t c = 0; c < shape.channels; ++c) out.back()[c] = 2;
    }
    kernels().batch_norm_backward_data(shape,
                                       {.x = x.data(),
                                        .dy = dy.data(),
                                        .choice = nullptr,
                                        .scale = arrays[0].data(),
                                        .shift = arrays[1].data(),
                                        .mean = arrays[2].data(),
                                        .inverse_deviation = arrays[3].data(),
                                        .pixels = own,
                                        .shared_pixels = shared},
                                       arrays[4].data(), arrays[5].data(), out[0].data());
    kernels().batch_norm_running(
        {.channels = shape.channels, .pixels = own, .momentum = 0.3, .shared_pixels = shared},
        nullptr, arrays[2].data(), arrays[3].data(), out[1].data(), out[2].data());
    return out;
  };
  const auto from_host = run(50, nullptr), from_device = run(18, pixels.data());
  for (size_t i = 0; i < from_host.size(); ++i)
    ExpectClose(from_device[i], from_host[i], "shared pixels", 0);
  TestBuffer running_mean(1), running_variance(1);
  running_mean[0] = running_variance[0] = 2;
  kernels().batch_norm_running({.channels = 1, .shared_pixels = none.data()}, nullptr,
                               arrays[2].data(), arrays[3].data(), running_mean.data(),
                               running_variance.data());
  EXPECT_EQ(running_mean[0], 2);
  EXPECT_EQ(running_variance[0], 2);
}

// Manual calculation: a deviation of 2, four pixels whose unbiased variance is 4 / 3 of the biased.
TEST_P(BatchNormContractTest, ScaleAndRunningStatisticsMatchManualCalculation) {
  TestBuffer mean(1), variance(1), gamma(1), beta(1), bias(1), inverse(1), scale(1), shift(1);
  TestBuffer running_mean(1), running_variance(1);
  mean[0] = 3, variance[0] = 3.75f, gamma[0] = 8, beta[0] = 1, bias[0] = 5;
  running_mean[0] = 1, running_variance[0] = 1;
  kernels().batch_norm_scale({.channels = 1, .epsilon = 0.25}, Stored(0.5f).data(), mean.data(),
                             variance.data(), gamma.data(), beta.data(), bias.data(),
                             inverse.data(), scale.data(), shift.data());
  EXPECT_EQ(inverse[0], 0.5f);
  EXPECT_EQ(scale[0], 2);
  EXPECT_EQ(shift[0], 0.5f + (5 - 3) * 2);
  kernels().batch_norm_running({.channels = 1, .pixels = 4, .momentum = 0.5}, nullptr, mean.data(),
                               variance.data(), running_mean.data(), running_variance.data());
  EXPECT_EQ(running_mean[0], 2);
  EXPECT_EQ(running_variance[0], 3);
}

INSTANTIATE_TEST_SUITE_P(KernelSets, BatchNormContractTest, EveryKernelSet(), KernelSetName);

// Whether pixel `p` of x contributes to pixel `out` of y.
bool IsIn(const BatchNormShape& shape, int64_t p, int64_t out) {
  if (!shape.pool) return p == out;
  const auto covers = [&](int64_t at, int64_t window) {
    const int64_t cell = at - (window * shape.pool_stride - shape.pool_padding);
    return cell >= 0 && cell < shape.pool_kernel;
  };
  return covers(p % shape.width, out % shape.out_width()) &&
         covers(p / shape.width % shape.height, out / shape.out_width() % shape.out_height()) &&
         p / shape.width / shape.height == out / shape.out_width() / shape.out_height();
}

// The whole layer by definition.
Doubles InDouble(const BatchNormShape& shape, const Doubles& x, const Doubles& gamma,
                 const Doubles& beta) {
  const int64_t pixels = shape.pixels();
  Doubles y(shape.out_pixels() * shape.channels, -std::numeric_limits<double>::infinity());
  for (int64_t c = 0; c < shape.channels; ++c) {
    double mean = 0;
    for (int64_t p = 0; p < pixels; ++p) mean += x[p * shape.channels + c] / pixels;
    double variance = 0;
    for (int64_t p = 0; p < pixels; ++p) {
      variance += std::pow(x[p * shape.channels + c] - mean, 2) / pixels;
    }
    for (int64_t p = 0; p < pixels; ++p) {
      double value =
          gamma[c] * (x[p * shape.channels + c] - mean) / std::sqrt(variance + kEpsilon) + beta[c];
      if (shape.activation != Activation::kNone) value = std::max(value, 0.0);
      if (shape.activation == Activation::kRelu6) value = std::min(value, 6.0);
      for (int64_t out = 0; out < shape.out_pixels(); ++out) {
        if (!IsIn(shape, p, out)) continue;
        y[out * shape.channels + c] = std::max(y[out * shape.channels + c], value);
      }
    }
  }
  return y;
}

TEST(ReferenceKernelsTest, BatchNormGradientsMatchFiniteDifferences) {
  std::mt19937 random(3);
  std::vector<BatchNormShape> shapes;
  for (const auto& [activation, pool] : kFusions) {
    shapes.push_back({4, 5, 6, 7, activation, pool});
  }
  BatchNormShape overlapping = shapes.back();
  overlapping.pool_kernel = 3;
  overlapping.pool_padding = 1;
  shapes.push_back(overlapping);
  for (const BatchNormShape& shape : shapes) {
    SCOPED_TRACE(PoolName(shape));
    TestBuffer x(shape.pixels() * shape.channels, random);
    TestBuffer gamma(shape.channels, random), beta(shape.channels, random);
    for (int64_t c = 0; c < shape.channels; ++c) gamma[c] *= 4;
    const BatchNormState state(shape, x.data(), gamma, beta);
    TestBuffer dy(state.y.size(), random);
    TestBuffer dgamma(shape.channels), dbeta(shape.channels), dx(x.size());
    const BatchNormGradient gradient = state.Gradient(x.data(), dy.data());
    const KernelTable& table = ReferenceKernels();
    table.batch_norm_backward_parameters(shape, gradient, dgamma.data(), dbeta.data(), nullptr);
    table.batch_norm_backward_data(shape, gradient, dgamma.data(), dbeta.data(), dx.data());

    const Doubles at_x = ToDoubles(x), at_gamma = ToDoubles(gamma), at_beta = ToDoubles(beta);
    const Doubles expected = InDouble(shape, at_x, at_gamma, at_beta);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(state.y[i], expected[i], 2e-5);
    ExpectGradient([&](const Doubles& moved) { return InDouble(shape, moved, at_gamma, at_beta); },
                   x, dy, dx, random, "dx");
    ExpectGradient([&](const Doubles& moved) { return InDouble(shape, at_x, moved, at_beta); },
                   gamma, dy, dgamma, random, "dgamma");
    ExpectGradient([&](const Doubles& moved) { return InDouble(shape, at_x, at_gamma, moved); },
                   beta, dy, dbeta, random, "dbeta");
  }
}

}  // namespace
}  // namespace muster::kernels
