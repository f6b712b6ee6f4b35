// Tests of defaults and rules for the sections of train.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTrain[] = R"(
train:
  model: {name: small_cnn}
  dataset: {name: fashion_mnist, path: /data}
  epochs: 3
  optimizer: {learning_rate: 0.1}
  augment: {flip: true}
)";

using Overrides = std::vector<std::string>;

v1::JobSpec Defaulted(const Overrides& overrides) {
  auto spec = Parse(kTrain, "job.yaml", overrides);
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return {};
  ApplyDefaults(*spec);
  return *std::move(spec);
}

std::string ProblemsOf(const Overrides& overrides) {
  return std::string(Validate(Defaulted(overrides)).message());
}

const Overrides kNtXent = {"train.objective.name=nt_xent"};

Overrides With(Overrides overrides, const std::string& another) {
  overrides.push_back(another);
  return overrides;
}

TEST(TrainDefaultsTest, DependOnTheDataset) {
  const std::pair<const char*, uint32_t> cases[] = {
      {"mnist", 28}, {"cifar10", 32}, {"cifar100", 32}, {"image_folder", 224}};
  for (const auto& [name, image_size] : cases) {
    const v1::JobSpec spec = Defaulted({absl::StrCat("train.dataset.name=", name)});
    EXPECT_EQ(spec.train().image_size(), image_size) << name;
    EXPECT_EQ(spec.train().dataset().center_crop(), image_size == 224 ? 0.875 : 1) << name;
    EXPECT_EQ(Validate(spec).message(), "");
  }
  EXPECT_EQ(Defaulted({"train.dataset.name=cifar10", "train.image_size=112"}).train().image_size(),
            112u);
}

TEST(TrainDefaultsTest, ApplyOnlyToChosenOptions) {
  const v1::TrainSpec sgd = Defaulted({}).train();
  EXPECT_EQ(sgd.accumulation_steps(), 1u);
  EXPECT_EQ(sgd.optimizer().beta1(), 0);
  EXPECT_EQ(sgd.optimizer().trust_coefficient(), 0);
  EXPECT_EQ(sgd.schedule().factor(), 0);
  EXPECT_EQ(sgd.objective().temperature(), 0);
  EXPECT_EQ(sgd.objective().negatives(), "");
  EXPECT_FALSE(sgd.has_ema() || sgd.has_tensorboard() || sgd.augment().has_random_erasing());
  const v1::OptimizerSpec adamw = Defaulted({"train.optimizer.name=adamw"}).train().optimizer();
  EXPECT_EQ(adamw.beta1(), 0.9);
  EXPECT_EQ(adamw.beta2(), 0.999);
  EXPECT_EQ(adamw.epsilon(), 1e-8);
  EXPECT_EQ(Defaulted({"train.optimizer.name=lars"}).train().optimizer().trust_coefficient(),
            0.001);
  EXPECT_EQ(Defaulted({"train.schedule.name=step"}).train().schedule().factor(), 0.1);
  EXPECT_EQ(Defaulted(kNtXent).train().objective().temperature(), 0.5);
  EXPECT_EQ(Defaulted(kNtXent).train().objective().negatives(), "global");
  EXPECT_EQ(Defaulted({"train.model={name: mobilenet_v2}"}).train().model().dropout(), 0.2);
  EXPECT_FALSE(Defaulted({"train.model={name: resnet18}"}).train().model().has_dropout());
  EXPECT_EQ(Defaulted({"train.tensorboard.dir=/t"}).train().tensorboard().every_steps(), 10u);
}

TEST(TrainDefaultsTest, ApplyToLayers) {
  const v1::JobSpec spec = Defaulted(
      {"train.model={layers: [conv2d: {out_channels: 4, kernel: 3}, batch_norm2d, "
       "avg_pool2d: {kernel: 3}, residual: {layers: [max_pool2d: {kernel: 2, stride: 1}], "
       "shortcut: [linear]}]}"});
  const auto& layers = spec.train().model().layers();
  EXPECT_EQ(layers[0].conv2d().stride(), 1u);
  EXPECT_EQ(layers[0].conv2d().groups(), 1u);
  EXPECT_TRUE(layers[0].conv2d().bias());
  EXPECT_EQ(layers[1].batch_norm2d().epsilon(), 1e-5);
  EXPECT_EQ(layers[1].batch_norm2d().momentum(), 0.1);
  EXPECT_EQ(layers[2].avg_pool2d().stride(), 3u);
  EXPECT_EQ(layers[3].residual().layers(0).max_pool2d().stride(), 1u);
  EXPECT_TRUE(layers[3].residual().shortcut(0).linear().bias());
  EXPECT_EQ(spec.name(), "fashion-mnist");
}

TEST(ValidateTrainTest, AcceptsValidSpecs) {
  const Overrides cases[] = {
      {"train.model={name: resnet50, stochastic_depth: 0.2, zero_init_residual: true}"},
      {"train.model={name: resnet18, small_stem: true}", "train.sync_batch_norm=true"},
      {"train.model={name: mobilenet_v2, dropout: 0, stochastic_depth: 0.1}"},
      {"train.optimizer={learning_rate: 1, momentum: 0.9, nesterov: true, clip_norm: 1}"},
      {"train.optimizer={name: adamw, learning_rate: 1e-3, beta1: 0.8, beta2: 0.99}"},
      {"train.optimizer={name: lars, learning_rate: 1, momentum: 0.9, trust_coefficient: 0.01, "
       "exclude_norm_and_bias: true}"},
      {"train.schedule={name: step, milestones: [1, 2.5]}"},
      {"train.schedule={name: step, every_epochs: 0.5, factor: 0.3, warmup_epochs: 1}"},
      {"train.objective={name: nt_xent, negatives: node, projection: [64, 32]}"},
      {"train.augment={random_resized_crop: {}, random_erasing: {}, flip: true}"},
      {"train.dataset={name: cifar10, path: /d, mean: [0, 0.5, 1], standard_deviation: [1, 1, 1]}"},
      {"train.init_from=/m.safetensors", "train.init_exclude=[fc.]"},
      {"train.ema.decay=0.999", "train.accumulation_steps=4"},
      {"train.image_size=4"},
      {"train.image_size=1024"},
  };
  for (const Overrides& overrides : cases) EXPECT_EQ(ProblemsOf(overrides), "") << overrides[0];
}

TEST(ValidateTrainTest, ReportsEachProblemWithItsPath) {
  const std::pair<const char*, const char*> cases[] = {
      {"train.model={name: resnet18, dropout: 0.5}",
       "train.model.dropout: is given, but train.model.name is "},
      {"train.model={name: mlp, stochastic_depth: 0.5}",
       "train.model.stochastic_depth: is given, but train.model.name is "},
      {"train.model={name: resnet18, stochastic_depth: 1}",
       "train.model.stochastic_depth: must be from 0 to below 1"},
      {"train.model.small_stem=true", "train.model.small_stem: is given, but train.model.name is "},
      {"train.model.zero_init_residual=true",
       "train.model.zero_init_residual: is given, but train.model.name is "},
      {"train.image_size=2", "train.image_size: must be from 4 to 1024, not 2"},
      {"train.image_size=1025", "train.image_size: must be from 4 to 1024, not 1025"},
      {"train.dataset.mean=[0.1, 0.2, 0.3]",
       "train.dataset.mean: must be 1 number, one per channel, not 3"},
      {"train.dataset={name: cifar10, path: /d, mean: [0.1]}",
       "train.dataset.mean: must be 3 numbers, one per channel, not 1"},
      {"train.dataset.mean=[128]", "train.dataset.mean[0]: must be from 0 to 1, not 128"},
      {"train.dataset.standard_deviation=[0]",
       "train.dataset.standard_deviation[0]: must be above 0 and at most 1, not 0"},
      {"train.dataset.center_crop=1.5", "train.dataset.center_crop: must be above 0"},
      {"train.accumulation_steps=129",
       "train.global_batch: 128 is below ranks times accumulation_steps, 129"},
      {"train.optimizer.nesterov=true", "train.optimizer.nesterov: is true, but momentum is 0"},
      {"train.optimizer={name: lars, learning_rate: 1, momentum: 0.9, nesterov: true}",
       "train.optimizer.nesterov: is given, but train.optimizer.name is "},
      {"train.optimizer.beta1=0.9",
       "train.optimizer.beta1: is given, but train.optimizer.name is "},
      {"train.optimizer.beta2=0.9",
       "train.optimizer.beta2: is given, but train.optimizer.name is "},
      {"train.optimizer.epsilon=1e-6",
       "train.optimizer.epsilon: is given, but train.optimizer.name is "},
      {"train.optimizer.trust_coefficient=1",
       "train.optimizer.trust_coefficient: is given, but train.optimizer.name is "},
      {"train.optimizer={name: adamw, learning_rate: 1, momentum: 0.9}",
       "train.optimizer.momentum: is given, but train.optimizer.name is "},
      {"train.optimizer={name: adamw, learning_rate: 1, beta2: 1}",
       "train.optimizer.beta2: must be above 0 and below 1, not 1"},
      {"train.optimizer={name: adamw, learning_rate: 1, epsilon: -1}",
       "train.optimizer.epsilon: must be above 0"},
      {"train.optimizer={name: lars, learning_rate: 1, trust_coefficient: -1}",
       "train.optimizer.trust_coefficient: must be above 0"},
      {"train.optimizer.clip_norm=-1", "train.optimizer.clip_norm: must be 0 or more, not -1"},
      {"train.schedule.name=step", "train.schedule: step needs either milestones or every_epochs"},
      {"train.schedule={name: step, milestones: [1], every_epochs: 1}",
       "train.schedule: step needs either milestones or every_epochs"},
      {"train.schedule={name: step, milestones: [2, 2]}",
       "train.schedule.milestones: must be in ascending order, not 2 after 2"},
      {"train.schedule={name: step, milestones: [0]}",
       "train.schedule.milestones[0]: must be above 0 and at most 1000000, not 0"},
      {"train.schedule={name: step, every_epochs: -1}",
       "train.schedule.every_epochs: must be above 0 and at most 1000000, not -1"},
      {"train.schedule={name: step, every_epochs: 1, factor: -1}",
       "train.schedule.factor: must be above 0"},
      {"train.schedule={name: cosine, milestones: [1]}",
       "train.schedule.milestones: is given, but train.schedule.name is "},
      {"train.schedule.every_epochs=1",
       "train.schedule.every_epochs: is given, but train.schedule.name is "},
      {"train.schedule.factor=0.5", "train.schedule.factor: is given, but train.schedule.name is "},
      {"train.objective={name: nt_xent, label_smoothing: 0.1}",
       "train.objective.label_smoothing: is given, but train.objective.name is "},
      {"train.objective.temperature=1",
       "train.objective.temperature: is given, but train.objective.name is "},
      {"train.objective.negatives=node",
       "train.objective.negatives: is given, but train.objective.name is "},
      {"train.objective.projection=[8]",
       "train.objective.projection: is given, but train.objective.name is "},
      {"train.objective={name: nt_xent, negatives: all}",
       "train.objective.negatives: unknown 'all'"},
      {"train.objective={name: nt_xent, temperature: -1}",
       "train.objective.temperature: must be above 0"},
      {"train.objective={name: nt_xent, projection: [0]}",
       "train.objective.projection[0]: must be from 1 to 65536, not 0"},
      {"train.augment={crop_padding: 2, random_resized_crop: {}}",
       "train.augment: has both crop_padding and random_resized_crop; remove one of them"},
      {"train.augment.random_resized_crop={min_scale: 0.5, max_scale: 0.4}",
       "train.augment.random_resized_crop.min_scale: must be at most max_scale, 0.4, not 0.5"},
      {"train.augment.random_resized_crop={max_scale: 2}",
       "train.augment.random_resized_crop.max_scale: must be above 0 and at most 1, not 2"},
      {"train.augment.random_resized_crop={min_ratio: 2}",
       "train.augment.random_resized_crop.min_ratio: must be at most max_ratio, 1.33333, not 2"},
      {"train.augment.random_erasing={probability: 2}",
       "train.augment.random_erasing.probability: must be above 0 and at most 1"},
      {"train.augment.random_erasing={max_ratio: 0.1}",
       "train.augment.random_erasing.min_ratio: must be at most max_ratio, 0.1, not 0.3"},
      {"train.init_exclude=[fc.]", "train.init_exclude: is given, but train.init_from is missing"},
      {"train.ema={}", "train.ema.decay: is missing"},
      {"train.ema.decay=1", "train.ema.decay: must be above 0 and below 1"},
      {"train.tensorboard={every_steps: 5}", "train.tensorboard.dir: is missing"},
      {"train.tensorboard.dir=logs", "train.tensorboard.dir: must be an absolute path"},
      {"train.precision=bf16", "train.precision: unknown 'bf16'"},
      {"train.mixed_precision={}", "train.mixed_precision: is given, but train.precision is O0"},
      {"train.mixed_precision={dtype: float16, loss_scale: {initial: 8}}",
       "train.mixed_precision: is given, but train.precision is O0"},
      {"train.strategy.hierarchical=yes", "train.strategy.hierarchical: unknown 'yes'"},
      {"train.cuda_graphs=off", "train.cuda_graphs: unknown 'off'"},
  };
  for (const auto& [override_text, expected] : cases) {
    const std::string problems = ProblemsOf({override_text});
    EXPECT_THAT(problems, HasSubstr(expected)) << override_text;
    EXPECT_FALSE(absl::StrContains(problems, "\n")) << problems;  // only that problem
  }
}

TEST(TrainDefaultsTest, GpusAreDeterministicAndExact) {
  EXPECT_EQ(Defaulted({}).train().deterministic(), v1::TrainSpec::DETERMINISTIC);
  EXPECT_FALSE(Defaulted({}).train().tf32());
  EXPECT_EQ(Defaulted({"train.deterministic=false"}).train().deterministic(),
            v1::TrainSpec::NOT_DETERMINISTIC);
  EXPECT_TRUE(Defaulted({"train.tf32=true"}).train().tf32());
}

TEST(TrainDefaultsTest, ApplyToMixedPrecision) {
  EXPECT_FALSE(Defaulted({}).train().has_mixed_precision());
  const v1::MixedPrecisionSpec bfloat16 =
      Defaulted({"train.precision=O1"}).train().mixed_precision();
  EXPECT_EQ(bfloat16.dtype(), "bfloat16");
  EXPECT_EQ(bfloat16.gradient_dtype(), "auto");
  EXPECT_FALSE(bfloat16.has_loss_scale());
  const Overrides half = {"train.precision=O2", "train.mixed_precision.dtype=float16"};
  const v1::LossScaleSpec scale = Defaulted(half).train().mixed_precision().loss_scale();
  EXPECT_EQ(scale.initial(), 65536);
  EXPECT_EQ(scale.growth_interval(), 2000u);
  EXPECT_EQ(scale.growth_factor(), 2);
  EXPECT_EQ(scale.backoff_factor(), 0.5);
  EXPECT_FALSE(scale.fixed());
  const v1::LossScaleSpec asked =
      Defaulted({"train.precision=O3", "train.mixed_precision.loss_scale.initial=8"})
          .train()
          .mixed_precision()
          .loss_scale();
  EXPECT_EQ(asked.initial(), 8);
  EXPECT_EQ(asked.growth_interval(), 2000u);
}

TEST(ValidateTrainTest, ChecksMixedPrecision) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", ""},
      {"{dtype: float16, gradient_dtype: bfloat16}", ""},
      {"{loss_scale: {initial: 1024, growth_factor: 1, backoff_factor: 0.25, fixed: true}}", ""},
      {"{dtype: bf16}", "train.mixed_precision.dtype: unknown 'bf16'; did you mean 'bfloat16'?"},
      {"{dtype: fp16}", "train.mixed_precision.dtype: unknown 'fp16'; did you mean 'float16'?"},
      {"{dtype: float32}", "train.mixed_precision.dtype: unknown 'float32'"},
      {"{gradient_dtype: fp32}",
       "train.mixed_precision.gradient_dtype: unknown 'fp32'; did you mean 'float32'?"},
      {"{gradient_dtype: bf16}",
       "train.mixed_precision.gradient_dtype: unknown 'bf16'; did you mean 'bfloat16'?"},
      {"{gradient_dtype: fp16}",
       "train.mixed_precision.gradient_dtype: unknown 'fp16'; did you mean 'float16'?"},
      {"{loss_scale: {growth_interval: 5}}",
       "train.mixed_precision.loss_scale.initial: is missing"},
      {"{loss_scale: {initial: -1}}",
       "train.mixed_precision.loss_scale.initial: must be from 1 to 16777216, not -1"},
      {"{loss_scale: {initial: 3e7}}", "train.mixed_precision.loss_scale.initial: must be from 1"},
      {"{dtype: float16, loss_scale: {growth_factor: 0.5}}",
       "train.mixed_precision.loss_scale.growth_factor: must be from 1"},
      {"{dtype: float16, loss_scale: {backoff_factor: 1}}",
       "train.mixed_precision.loss_scale.backoff_factor: must be above 0 and below 1"},
      {"{dtype: float16, loss_scale: {backoff_factor: -0.5}}",
       "train.mixed_precision.loss_scale.backoff_factor: must be above 0 and below 1"},
  };
  for (const auto& [mixed, expected] : cases) {
    const std::string problems =
        ProblemsOf({"train.precision=O2", absl::StrCat("train.mixed_precision=", mixed)});
    EXPECT_THAT(problems, HasSubstr(expected)) << mixed;
    EXPECT_EQ(problems.empty(), expected[0] == '\0') << problems;
    EXPECT_FALSE(absl::StrContains(problems, "\n")) << problems;  // only that problem
  }
}

TEST(ValidateTrainTest, ChecksBatchOfNtXent) {
  EXPECT_THAT(ProblemsOf(With(kNtXent, "train.accumulation_steps=2")),
              HasSubstr("train.accumulation_steps: must be 1 with nt_xent"));
  EXPECT_THAT(ProblemsOf(With(kNtXent, "train.global_batch=1")),
              HasSubstr("train.global_batch: must be at least 2 with nt_xent"));
  EXPECT_THAT(ProblemsOf(With(kNtXent, "train.augment.flip=false")),
              HasSubstr("train.augment: is missing"));
}

TEST(ValidateTrainTest, ChecksLayers) {
  const std::pair<const char*, const char*> cases[] = {
      {"[conv2d: {kernel: 3}]", "train.model.layers[0].conv2d.out_channels: is missing"},
      {"[conv2d: {out_channels: 3}]", "train.model.layers[0].conv2d.kernel: is missing"},
      {"[relu, max_pool2d]", "train.model.layers[1].max_pool2d.kernel: is missing"},
      {"[conv2d: {out_channels: 70000, kernel: 3}]",
       "train.model.layers[0].conv2d.out_channels: must be from 1 to 65536, not 70000"},
      {"[conv2d: {out_channels: 3, kernel: 5000}]",
       "train.model.layers[0].conv2d.kernel: must be from 1 to 1024, not 5000"},
      {"[max_pool2d: {kernel: 16}]",
       "train.model.layers[0].max_pool2d.kernel: must be from 1 to 15, not 16"},
      {"[conv2d: {out_channels: 3, kernel: 3, groups: 2}]",
       "train.model.layers[0].conv2d.groups: must be a divisor of out_channels"},
      {"[batch_norm2d: {momentum: 2}]",
       "train.model.layers[0].batch_norm2d.momentum: must be above 0 and at most 1"},
      {"[max_pool2d: {kernel: 3, padding: 2}]",
       "train.model.layers[0].max_pool2d.padding: must be at most half the kernel"},
      {"[avg_pool2d: {kernel: 3, padding: 1}]",
       "train.model.layers[0].avg_pool2d.padding: applies only to max_pool2d"},
      {"[dropout]", "train.model.layers[0].dropout.probability: is missing"},
      {"[dropout: {probability: 1}]",
       "train.model.layers[0].dropout.probability: must be above 0 and below 1, not 1"},
      {"[residual: {layers: []}]", "train.model.layers[0].residual.layers: is missing"},
      {"[residual: {layers: [relu], drop_probability: 1}]",
       "train.model.layers[0].residual.drop_probability: must be from 0 to below 1"},
      {"[residual: {layers: [relu, residual: {layers: [relu], shortcut: [linear, conv2d: "
       "{out_channels: 1}]}]}]",
       "train.model.layers[0].residual.layers[1].residual.shortcut[1].conv2d.kernel: is missing"},
  };
  for (const auto& [layers, expected] : cases) {
    const std::string problems = ProblemsOf({absl::StrCat("train.model={layers: ", layers, "}")});
    EXPECT_THAT(problems, HasSubstr(expected)) << layers;
    EXPECT_FALSE(absl::StrContains(problems, "\n")) << problems;
  }
  EXPECT_EQ(ProblemsOf({"train.model={name: mlp, layers: [relu]}"}),
            "train.model: has both name and layers; remove one of them");
  EXPECT_EQ(ProblemsOf({"train.model={dropout: 0.5, layers: [relu]}"}),
            "train.model.dropout: is given, but train.model.name is not set; it applies only with "
            "small_cnn, mlp or mobilenet_v2");
}

// Layers that YAML cannot express, but a request can contain.
TEST(ValidateTrainTest, RejectsMalformedLayersInRequests) {
  v1::JobSpec spec = Defaulted({"train.model={layers: [relu]}"});
  spec.mutable_train()->mutable_model()->add_layers();
  EXPECT_EQ(Validate(spec).message(), "train.model.layers[1]: has no layer type");

  spec = Defaulted({"train.model={layers: [relu]}"});
  for (int i = 1; i < 1024; ++i) {
    spec.mutable_train()->mutable_model()->add_layers()->mutable_relu();
  }
  EXPECT_EQ(Validate(spec).message(), "");
  for (int i = 0; i < 3; ++i) {
    spec.mutable_train()->mutable_model()->add_layers()->mutable_relu();
  }
  EXPECT_EQ(Validate(spec).message(), "train.model.layers: has more than 1024 layers");

  spec = Defaulted({"train.model={layers: [relu]}"});
  v1::LayerSpec* layer = spec.mutable_train()->mutable_model()->mutable_layers(0);
  for (int depth = 1; depth < 30; ++depth) layer = layer->mutable_residual()->add_layers();
  layer->mutable_relu();
  EXPECT_THAT(std::string(Validate(spec).message()),
              HasSubstr("layers are nested more than 8 deep"));

  spec = Defaulted({"train.schedule={name: step, milestones: [1]}"});
  spec.mutable_train()->mutable_schedule()->set_milestones(0, std::nan(""));
  EXPECT_THAT(std::string(Validate(spec).message()), HasSubstr("train.schedule.milestones"));
}

TEST(TrainToYamlTest, RoundTrips) {
  const Overrides variants[] = {
      {"train.model={layers: [conv2d: {out_channels: 8, kernel: 3, bias: false}, relu, "
       "residual: {layers: [batch_norm2d, relu6], shortcut: [max_pool2d: {kernel: 2}], "
       "drop_probability: 0.1}, flatten, dropout: {probability: 0.3}, linear]}"},
      {"train.model={layers: [flatten, linear]}"},
      {"train.model={name: mobilenet_v2, stochastic_depth: 0.1}",
       "train.dataset={name: cifar10, path: /d, mean: [0.1, 0.2, 0.3]}"},
      {"train.optimizer={name: adamw, learning_rate: 1e-3}",
       "train.schedule={name: step, milestones: [1, 2.5]}", "train.ema.decay=0.999"},
      {"train.objective={name: nt_xent, projection: [64, 32]}", "train.tensorboard.dir=/t"},
      {"train.augment={random_resized_crop: {}, random_erasing: {}}"},
  };
  for (const Overrides& overrides : variants) {
    const v1::JobSpec spec = Defaulted(overrides);
    ASSERT_EQ(Validate(spec).message(), "");
    const std::string yaml = ToYaml(spec);
    auto again = Parse(yaml, "again.yaml");
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << yaml;
    std::string difference;
    MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&difference);
    EXPECT_TRUE(differencer.Compare(spec, *again)) << difference << yaml;
    ApplyDefaults(*again);
    EXPECT_TRUE(MessageDifferencer::Equals(spec, *again)) << yaml;
  }
}

TEST(TrainToYamlTest, PrintsOneLinePerLayer) {
  const v1::JobSpec spec = Defaulted(
      {"train.model={layers: [conv2d: {out_channels: 8, kernel: 3}, relu, flatten, linear]}"});
  EXPECT_THAT(ToYaml(spec),
              HasSubstr("      - {conv2d: {out_channels: 8, kernel: 3, stride: 1, padding: 0, "
                        "groups: 1, bias: true}}\n"
                        "      - relu\n"
                        "      - flatten\n"
                        "      - {linear: {out_features: 0, bias: true}}\n"));
}

constexpr char kStrategyTrain[] =
    "train: {model: {name: small_cnn}, dataset: {name: fashion_mnist, path: /data}, max_steps: 1,"
    " optimizer: {learning_rate: 0.1}}";

v1::JobSpec WithStrategy(const std::vector<std::string>& overrides) {
  auto spec = Parse(kStrategyTrain, "job.yaml", overrides);
  EXPECT_TRUE(spec.ok()) << spec.status();
  ApplyDefaults(*spec);
  return *spec;
}

std::string StrategyProblems(const std::vector<std::string>& overrides) {
  return std::string(Validate(WithStrategy(overrides)).message());
}

TEST(ValidateStrategyTest, AppliesPipelineDefaults) {
  const v1::JobSpec spec = WithStrategy(
      {"train.strategy.name=pipeline", "resources.nodes=2", "resources.ranks_per_node=2"});
  const v1::PipelineSpec& pipeline = spec.train().strategy().pipeline();
  EXPECT_EQ(pipeline.stages(), 4u);
  EXPECT_EQ(pipeline.schedule(), "1f1b");
  EXPECT_EQ(pipeline.micro_batches(), 16u);
  const v1::JobSpec sequential =
      WithStrategy({"train.strategy={name: pipeline, pipeline: {schedule: sequential}}",
                    "resources.ranks_per_node=2"});
  EXPECT_EQ(sequential.train().strategy().pipeline().micro_batches(), 1u);
  // Other strategies have no pipeline section.
  EXPECT_FALSE(WithStrategy({}).train().strategy().has_pipeline());
}

TEST(ValidateStrategyTest, ChecksPipeline) {
  const auto problems = [](const std::string& pipeline, std::vector<std::string> overrides = {}) {
    overrides.push_back("train.strategy={name: pipeline, pipeline: {" + pipeline + "}}");
    overrides.push_back("resources.ranks_per_node=4");
    return StrategyProblems(overrides);
  };
  EXPECT_THAT(problems("stages: 2"), Not(HasSubstr("pipeline.")));
  EXPECT_THAT(problems("stages: 3"), HasSubstr("3 stages do not divide 4 ranks"));
  EXPECT_THAT(problems("schedule: interleaved"), HasSubstr("unknown 'interleaved'"));
  EXPECT_THAT(problems("stages: 4, cuts: [conv2]"), HasSubstr("1 cuts make 2 stages, not 4"));
  EXPECT_THAT(problems("stages: 4, cuts: [a, a, b]"), HasSubstr("not 'a' twice"));
  EXPECT_THAT(problems("stages: 2, micro_batches: 100"),
              HasSubstr("128 is below replicas times micro_batches, 200"));
  EXPECT_THAT(problems("", {"resources.nodes={min: 1, max: 2}"}), HasSubstr("one number"));
  EXPECT_THAT(problems("", {"train.accumulation_steps=2"}), HasSubstr("accumulation_steps"));
  EXPECT_THAT(problems("", {"train.sync_batch_norm=true"}), HasSubstr("sync_batch_norm"));
  EXPECT_THAT(problems("", {"train.objective.name=nt_xent"}),
              HasSubstr("must be cross_entropy with pipeline"));
  EXPECT_THAT(StrategyProblems({"train.strategy.pipeline.stages=1"}),
              HasSubstr("train.strategy.name is ddp; it applies only with pipeline"));
}

TEST(ValidateStrategyTest, DpAndHybridRequireOneProcessPerNode) {
  for (const std::string name : {"dp", "hybrid"}) {
    const std::string chosen = "train.strategy.name=" + name;
    EXPECT_THAT(StrategyProblems({chosen, "resources.ranks_per_node=2"}),
                HasSubstr("must be 1 with " + name));
    EXPECT_THAT(
        StrategyProblems({chosen, "resources.device=gpu", "resources.devices_per_rank=all"}),
        Not(HasSubstr("devices_per_rank")));
  }
  EXPECT_THAT(StrategyProblems({"train.strategy.name=dp", "resources.nodes=2"}),
              HasSubstr("resources.nodes: must be 1 with dp"));
  EXPECT_THAT(StrategyProblems({"train.strategy.name=hybrid", "resources.nodes=2"}),
              Not(HasSubstr("resources.nodes: must be 1 with dp")));
  EXPECT_THAT(StrategyProblems({"resources.device=gpu", "resources.devices_per_rank=2"}),
              HasSubstr("except with strategy dp or hybrid"));
}

TEST(ValidateStrategyTest, ChecksElasticDeterminism) {
  const auto problems = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"train.deterministic=elastic", "resources.device=cpu",
                                         "resources.nodes={min: 1, max: 3}"});
    return StrategyProblems(overrides);
  };
  EXPECT_EQ(problems({}), "");
  EXPECT_EQ(problems({"train.precision=O2"}), "");
  EXPECT_THAT(
      problems({"resources.device=auto"}),
      HasSubstr("resources.device: must be cpu with train.deterministic elastic, not auto"));
  EXPECT_THAT(problems({"train.strategy.name=hybrid"}),
              HasSubstr("train.strategy.name: must be ddp with deterministic elastic, not hybrid"));
  EXPECT_THAT(problems({"train.strategy.shard_optimizer=true"}),
              HasSubstr("train.strategy.shard_optimizer: must be false"));
  EXPECT_THAT(problems({"train.objective.name=nt_xent", "train.augment.flip=true"}),
              HasSubstr("train.objective.name: must be cross_entropy"));
  EXPECT_THAT(problems({"train.sync_batch_norm=true"}),
              HasSubstr("train.sync_batch_norm: must be false"));
  EXPECT_THAT(problems({"train.accumulation_steps=2"}),
              HasSubstr("train.accumulation_steps: must be 1 with deterministic elastic, not 2"));
  EXPECT_THAT(problems({"train.precision=O2", "train.mixed_precision.gradient_dtype=bfloat16"}),
              HasSubstr("train.mixed_precision.gradient_dtype: must be float32 or auto"));
  EXPECT_THAT(
      std::string(
          Parse(kStrategyTrain, "job.yaml", {"train.deterministic=sometimes"}).status().message()),
      HasSubstr("unknown 'sometimes'; one of: false, true, elastic"));
}

TEST(ValidateStrategyTest, ChecksShardedOptimizer) {
  const std::string sharded = "train.strategy.shard_optimizer=true";
  EXPECT_THAT(StrategyProblems({sharded, "train.optimizer.name=lars"}),
              HasSubstr("must be false with lars"));
  EXPECT_THAT(StrategyProblems({sharded, "train.strategy.name=dp"}),
              HasSubstr("train.strategy.name is dp; it applies only with ddp"));
  EXPECT_THAT(StrategyProblems({sharded, "train.optimizer.name=adamw"}),
              Not(HasSubstr("shard_optimizer")));
}

}  // namespace

}  // namespace muster::spec
