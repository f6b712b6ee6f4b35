#include "trainer/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/half.h"
#include "kernels/testing/limited_device.h"
#include "trainer/loop/testing.h"

namespace muster::train {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Truly;
using Floats = std::vector<float>;

// Parameters padded to multiples of 16 elements, as in a plan.
const std::vector<nn::ParameterInfo>& Parameters() {
  static const auto* const parameters = new std::vector<nn::ParameterInfo>{
      {.name = "a.weight", .shape = {3, 5}, .offset = 0, .count = 16},
      {.name = "a.bias", .shape = {3}, .offset = 16, .count = 16},
      {.name = "b.weight", .shape = {7, 3, 1, 1}, .offset = 32, .count = 32},
      {.name = "b.bias", .shape = {7}, .offset = 64, .count = 16},
  };
  return *parameters;
}
constexpr size_t kElements = 80;

v1::OptimizerSpec Spec(const std::string& name) {
  v1::OptimizerSpec spec;
  spec.set_name(name);
  spec.set_momentum(name == "adamw" ? 0 : 0.9);
  spec.set_beta1(0.9);
  spec.set_beta2(0.999);
  spec.set_epsilon(1e-8);
  spec.set_trust_coefficient(0.001);
  return spec;
}

// Optimizers that each keep and update one shard must give the parameters and states of one full
// update.
TEST(OptimizerSharesTest, EqualFullUpdate) {
  for (const std::string name : {"sgd", "adamw"}) {
    SCOPED_TRACE(name);
    v1::OptimizerSpec spec = Spec(name);
    spec.set_weight_decay(0.1);
    spec.set_exclude_norm_and_bias(true);
    const auto whole = Optimizer::Create(spec, Parameters());
    const auto shared = Optimizer::Create(spec, Parameters(), {.deferred = true});
    ASSERT_TRUE(whole.ok() && shared.ok());
    EXPECT_EQ((*shared)->states()[0].values.bytes(), 0);
    // The shard begins and ends within parameters.
    constexpr size_t kBegin = 24, kCount = 44;
    TestUpdates updates(UpdateRulesOf(spec));
    Floats expected(kElements, 0.5f), parameters = expected, gradients(kElements);
    for (size_t i = 0; i < kElements; ++i) gradients[i] = static_cast<float>(i + 1) / 16;
    ASSERT_TRUE((*shared)->KeepShare(kBegin, kCount).ok());
    EXPECT_EQ((*shared)->states()[0].values.bytes(), kCount * sizeof(float));
    for (uint64_t step = 0; step < 3; ++step) {
      const kernels::UpdateScalars* const scalars =
          updates.Decide(0.1, step, gradients.data(), kElements);
      (*whole)->Step(scalars, expected.data(), gradients.data());
      (*shared)->StepRange(scalars, kBegin, kCount, parameters.data() + kBegin,
                           gradients.data() + kBegin);
    }
    ASSERT_TRUE((*shared)->KeepAll().ok());
    for (size_t i = 0; i < kElements; ++i) {
      const bool own = i >= kBegin && i < kBegin + kCount;
      EXPECT_EQ(parameters[i], own ? expected[i] : 0.5f) << i;
      for (size_t state = 0; state < (*whole)->states().size(); ++state) {
        EXPECT_EQ((*shared)->states()[state].values.get()[i],
                  own ? (*whole)->states()[state].values.get()[i] : 0)
            << i;
      }
    }
  }
}

// An optimizer with an update controller.
class TestOptimizer {
 public:
  explicit TestOptimizer(const v1::OptimizerSpec& spec, const OptimizerOptions& options = {})
      : updates_(UpdateRulesOf(spec)) {
    auto optimizer = Optimizer::Create(spec, Parameters(), options);
    EXPECT_TRUE(optimizer.ok()) << optimizer.status();
    optimizer_ = *std::move(optimizer);
  }

  // Runs step number `step` (from 0) and returns the gradient norm if the spec clips.
  std::optional<double> Step(double learning_rate, uint64_t step, float* parameters,
                             const float* gradients, double loss_scale = 1) {
    optimizer_->Step(updates_.Decide(learning_rate, step, gradients, kElements, loss_scale),
                     parameters, gradients);
    return updates_.gradient_norm();
  }
  absl::Span<const OptimizerState> states() const { return optimizer_->states(); }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  TestUpdates updates_;
};

std::unique_ptr<TestOptimizer> Make(const v1::OptimizerSpec& spec,
                                    const OptimizerOptions& options = {}) {
  return std::make_unique<TestOptimizer>(spec, options);
}

size_t CountOf(const nn::ParameterInfo& parameter) {
  size_t count = 1;
  for (const int64_t dimension : parameter.shape) count *= dimension;
  return count;
}

// Returns random numbers, with zeros in the padding.
Floats Random(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(kElements, 0.0f);
  for (const nn::ParameterInfo& parameter : Parameters()) {
    std::generate_n(values.begin() + parameter.offset, CountOf(parameter),
                    [&] { return normal(random); });
  }
  return values;
}

Floats Scaled(Floats values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

double Norm(const Floats& values, const nn::ParameterInfo& parameter) {
  double sum = 0;
  for (size_t i = 0; i < CountOf(parameter); ++i) {
    sum += std::pow(double{values[parameter.offset + i]}, 2);
  }
  return std::sqrt(sum);
}

// Ratio of the first element of a parameter after and before.
float Left(const Floats& before, const Floats& after, size_t parameter) {
  const size_t offset = Parameters()[parameter].offset;
  return after[offset] / before[offset];
}

// Gradients are not checked themselves: this makes the check of parameters and states, before a
// checkpoint is written, sufficient.
TEST(OptimizerTest, NonFiniteGradientLeavesNonFiniteParameterOrState) {
  v1::OptimizerSpec plain = Spec("sgd"), nesterov = Spec("sgd");
  plain.set_momentum(0);
  nesterov.set_nesterov(true);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (v1::OptimizerSpec spec : {plain, Spec("sgd"), nesterov, Spec("adamw"), Spec("lars")}) {
    for (const double clip_norm : {0.0, 1.0}) {
      for (const double learning_rate : {0.1, 0.0}) {  // 0: the first step of a warm-up
        for (const float gradient : {kInfinity, -kInfinity, kNan}) {
          for (const size_t element : {0, 17}) {  // of a weight and a bias
            SCOPED_TRACE(testing::Message()
                         << spec.name() << ", momentum " << spec.momentum() << ", nesterov "
                         << spec.nesterov() << ", clip_norm " << clip_norm << ", learning rate "
                         << learning_rate << ", gradient " << gradient << " of " << element);
            spec.set_clip_norm(clip_norm);
            spec.set_weight_decay(0.01);
            spec.set_exclude_norm_and_bias(true);
            const auto optimizer = Make(spec);
            Floats parameters = Random(1), gradients = Random(2);
            optimizer->Step(learning_rate, 0, parameters.data(), gradients.data());
            gradients[element] = gradient;
            optimizer->Step(learning_rate, 1, parameters.data(), gradients.data());
            const auto finite = [](const float* values) {
              return std::all_of(values, values + kElements,
                                 [](float value) { return std::isfinite(value); });
            };
            bool all_finite = finite(parameters.data());
            for (const OptimizerState& state : optimizer->states()) {
              all_finite = all_finite && finite(state.values.get());
            }
            EXPECT_FALSE(all_finite);
          }
        }
      }
    }
  }
}

TEST(OptimizerTest, NamesStates) {
  const auto names = [](const v1::OptimizerSpec& spec) {
    std::vector<std::string> names;
    const auto optimizer = Make(spec);
    for (const OptimizerState& state : optimizer->states()) names.push_back(state.name);
    return names;
  };
  EXPECT_THAT(names(Spec("sgd")), ElementsAre("momentum"));
  EXPECT_THAT(names(Spec("lars")), ElementsAre("momentum"));
  EXPECT_THAT(names(Spec("adamw")), ElementsAre("exp_avg", "exp_avg_sq"));
  v1::OptimizerSpec plain = Spec("sgd");
  plain.set_momentum(0);
  EXPECT_THAT(names(plain), ElementsAre());
}

// With zero gradients, only the decay applies: 1 - 0.1 * 0.5.
TEST(OptimizerTest, ExcludesNormsAndBiasesFromDecay) {
  for (const char* name : {"sgd", "adamw"}) {
    for (const bool exclude : {false, true}) {
      v1::OptimizerSpec spec = Spec(name);
      spec.set_weight_decay(0.5);
      spec.set_exclude_norm_and_bias(exclude);
      const Floats before = Random(1);
      Floats after = before;
      Make(spec)->Step(0.1, 0, after.data(), Floats(kElements, 0.0f).data());
      EXPECT_FLOAT_EQ(Left(before, after, 0), 0.95f) << name;
      EXPECT_FLOAT_EQ(Left(before, after, 1), exclude ? 1.0f : 0.95f) << name;
      EXPECT_FLOAT_EQ(Left(before, after, 2), 0.95f) << name;
      EXPECT_FLOAT_EQ(Left(before, after, 3), exclude ? 1.0f : 0.95f) << name;
    }
  }
}

TEST(OptimizerTest, LarsUpdatesEachTensorInProportionToItsNorm) {
  v1::OptimizerSpec spec = Spec("lars");
  spec.set_exclude_norm_and_bias(true);
  const Floats before = Random(1), gradients = Random(2);
  Floats after = before;
  Make(spec)->Step(2.0, 0, after.data(), gradients.data());
  Floats moved(kElements);
  for (size_t i = 0; i < kElements; ++i) moved[i] = before[i] - after[i];
  for (const size_t adapted : {0, 2}) {
    const nn::ParameterInfo& parameter = Parameters()[adapted];
    const double expected = 2.0 * 0.001 * Norm(before, parameter);
    EXPECT_NEAR(Norm(moved, parameter), expected, 1e-4 * expected);
  }
  // The other tensors use plain SGD.
  for (const size_t plain : {1, 3}) {
    const size_t offset = Parameters()[plain].offset;
    EXPECT_NEAR(moved[offset], 2.0f * gradients[offset], 1e-5);
  }
}

TEST(OptimizerTest, LarsHandlesZeroParameters) {
  Floats parameters(kElements, 0.0f);
  const Floats gradients = Random(2);
  Make(Spec("lars"))->Step(0.5, 0, parameters.data(), gradients.data());
  EXPECT_EQ(parameters, Scaled(gradients, -0.5f));
}

TEST(OptimizerTest, ClipsByNormOfAllGradients) {
  for (const char* name : {"sgd", "adamw", "lars"}) {
    v1::OptimizerSpec clipping = Spec(name);
    clipping.set_clip_norm(0.5);
    Floats gradients(kElements, 0.0f);
    gradients[0] = 3;
    gradients[65] = -4;
    const Floats before = Random(1);
    Floats clipped = before, scaled = before, unclipped = before;
    EXPECT_EQ(Make(clipping)->Step(0.1, 0, clipped.data(), gradients.data()), 5.0);
    EXPECT_FALSE(
        Make(Spec(name))->Step(0.1, 0, scaled.data(), Scaled(gradients, 0.1f).data()).has_value());
    for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(clipped[i], scaled[i], 1e-6) << name;
    Make(Spec(name))->Step(0.1, 0, unclipped.data(), gradients.data());

    clipping.set_clip_norm(100);
    Floats below = before;
    EXPECT_EQ(Make(clipping)->Step(0.1, 0, below.data(), gradients.data()), 5.0);
    EXPECT_EQ(below, unclipped) << name;
  }
}

// Powers of two, so that unscaling is exact.
TEST(OptimizerTest, UnscalesGradientsBeforeClipping) {
  for (const char* name : {"sgd", "adamw", "lars"}) {
    for (const double clip_norm : {0.0, 0.5, 100.0}) {
      v1::OptimizerSpec spec = Spec(name);
      spec.set_clip_norm(clip_norm);
      const Floats gradients = Random(2);
      Floats parameters = Random(1), scaled = parameters;
      const auto norm = Make(spec)->Step(0.1, 0, parameters.data(), gradients.data());
      const auto scaled_norm =
          Make(spec)->Step(0.1, 0, scaled.data(), Scaled(gradients, 1024).data(), 1024);
      EXPECT_EQ(scaled_norm, norm) << name;
      EXPECT_EQ(scaled, parameters) << name << " " << clip_norm;
    }
  }
}

TEST(OptimizerTest, RoundsParametersAndStates) {
  const auto is_bfloat16 = [](float value) {
    return kernels::RoundTo(kernels::DataType::kBfloat16, double{value}) == value;
  };
  for (const char* name : {"sgd", "adamw", "lars"}) {
    const auto optimizer = Make(Spec(name), {.round_to = kernels::DataType::kBfloat16});
    Floats parameters = Random(1);
    optimizer->Step(0.1, 0, parameters.data(), Random(2).data());
    EXPECT_THAT(parameters, Each(Truly(is_bfloat16))) << name;
    EXPECT_NE(parameters, Random(1)) << name;
    for (const OptimizerState& state : optimizer->states()) {
      EXPECT_THAT(absl::MakeConstSpan(state.values.get(), kElements), Each(Truly(is_bfloat16)))
          << name << " " << state.name;
    }
  }
}

TEST(OptimizerTest, ReturnsNonFiniteNorm) {
  v1::OptimizerSpec spec = Spec("sgd");
  spec.set_clip_norm(1);
  Floats parameters = Random(1), gradients = Random(2);
  gradients[3] = std::numeric_limits<float>::quiet_NaN();
  const auto norm = Make(spec)->Step(0.1, 0, parameters.data(), gradients.data());
  ASSERT_TRUE(norm.has_value());
  EXPECT_TRUE(std::isnan(*norm));
  EXPECT_TRUE(std::isnan(parameters[40]));
}

// States and step number are the optimizer's complete state.
TEST(OptimizerTest, ResumesFromStates) {
  for (const char* name : {"sgd", "adamw", "lars"}) {
    v1::OptimizerSpec spec = Spec(name);
    spec.set_weight_decay(0.1);
    spec.set_nesterov(spec.name() == "sgd");
    spec.set_clip_norm(5);
    const auto whole = Make(spec), first = Make(spec), second = Make(spec);
    Floats parameters = Random(1), parts = parameters;
    for (uint32_t step = 0; step < 10; ++step) {
      whole->Step(0.1, step, parameters.data(), Random(100 + step).data());
    }
    for (uint32_t step = 0; step < 5; ++step) {
      first->Step(0.1, step, parts.data(), Random(100 + step).data());
    }
    for (size_t i = 0; i < first->states().size(); ++i) {
      std::copy_n(first->states()[i].values.get(), kElements, second->states()[i].values.get());
    }
    for (uint32_t step = 5; step < 10; ++step) {
      second->Step(0.1, step, parts.data(), Random(100 + step).data());
    }
    EXPECT_EQ(parts, parameters) << name;
    EXPECT_NE(parts, Random(1)) << name;
  }
}

TEST(OptimizerTest, ReturnsExhaustionOfDeviceMemory) {
  kernels::LimitedDevice device;
  OptimizerOptions options;
  options.device = &device;
  // LARS has two arrays in addition to its state.
  for (const auto& [name, allocations] : {std::pair("sgd", 1), {"adamw", 2}, {"lars", 3}}) {
    const v1::OptimizerSpec spec = Spec(name);
    const auto create = [&] { return Optimizer::Create(spec, Parameters(), options).status(); };
    EXPECT_EQ(AllocationsNeeded(device, create), allocations) << name;
  }
  options.deferred = true;
  const auto keep_share = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto optimizer, Optimizer::Create(Spec("adamw"), Parameters(), options));
    return optimizer->KeepShare(16, 32);
  };
  EXPECT_EQ(AllocationsNeeded(device, keep_share), 2);
}

TEST(OptimizerTest, RejectsInvalidSpecs) {
  const auto error = [](const v1::OptimizerSpec& spec) {
    const absl::Status status = Optimizer::Create(spec, Parameters()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  v1::OptimizerSpec spec = Spec("adam");
  EXPECT_THAT(error(spec), HasSubstr("unknown 'adam'"));
  spec = Spec("sgd");
  spec.set_momentum(1);
  EXPECT_THAT(error(spec), HasSubstr("optimizer.momentum"));
  spec.set_momentum(0);
  spec.set_nesterov(true);
  EXPECT_THAT(error(spec), HasSubstr("nesterov"));
  spec = Spec("adamw");
  spec.set_beta2(1);
  EXPECT_THAT(error(spec), HasSubstr("beta2"));
  spec = Spec("adamw");
  spec.set_epsilon(0);
  EXPECT_THAT(error(spec), HasSubstr("epsilon"));
  spec = Spec("lars");
  spec.set_trust_coefficient(0);
  EXPECT_THAT(error(spec), HasSubstr("trust_coefficient"));
  spec = Spec("lars");
  spec.set_clip_norm(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(error(spec), HasSubstr("clip_norm"));
}

}  // namespace
}  // namespace muster::train
