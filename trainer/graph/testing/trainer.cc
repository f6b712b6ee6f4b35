#include "trainer/graph/testing/trainer.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/device.h"

namespace muster::nn {

size_t CanonicalElements(const ParameterInfo& info) {
  size_t elements = 1;
  for (const int64_t dimension : info.shape) elements *= static_cast<size_t>(dimension);
  return elements;
}

namespace {

kernels::DeviceMemory Allocate(kernels::Device& device, size_t elements) {
  auto memory = device.Allocate(elements * sizeof(float));
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}

std::unique_ptr<Plan> Compiled(const Graph& graph, const CompileOptions& options) {
  auto plan = Compile(graph, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

}  // namespace

TestTrainer::TestTrainer(const Graph& graph, const CompileOptions& options)
    : TestTrainer(graph, Compiled(graph, options)) {}

TestTrainer::TestTrainer(const Graph& graph, std::unique_ptr<Plan> plan)
    : TestTrainer(graph, plan.get(), plan.get()) {
  own_plan_ = std::move(plan);
}

TestTrainer::TestTrainer(const Graph& graph, Plan* plan, Execution* execution)
    : image_elements_(graph.input.height * graph.input.width * graph.input.channels),
      plan_(plan),
      execution_(execution) {
  classes_ = static_cast<int64_t>(plan_->logits(1).size());
  parameters_ = Allocate(plan_->device(), plan_->parameter_elements());
  gradients_ = Allocate(plan_->device(), plan_->parameter_elements());
  momentum_ = Allocate(plan_->device(), plan_->parameter_elements());
  buffers_ = Allocate(plan_->device(), plan_->buffer_elements());
  scalars_ = Allocate(plan_->device(), sizeof(kernels::UpdateScalars) / sizeof(float));
  loss_ = Allocate(plan_->device(), sizeof(LossResult) / sizeof(float));
  execution_->Bind(parameters(), gradients(), buffers_.as<float>());
  plan_->Initialize(5);
}

void TestTrainer::Fill(uint64_t step, uint64_t first_sample, uint32_t samples) {
  std::vector<int32_t> labels;
  std::vector<float> pixels;
  for (uint32_t sample = 0; sample < samples; ++sample) {
    std::mt19937 random(static_cast<uint32_t>(step * 100003 + first_sample + sample));
    std::normal_distribution<float> normal;
    const int64_t label = random() % classes_;
    labels.push_back(static_cast<int32_t>(label));
    for (int64_t i = 0; i < image_elements_; ++i) {
      pixels.push_back(normal(random) + (i % classes_ == label ? 1.0f : 0.0f));
    }
  }
  plan_->device().CopyToDevice(execution_->labels(), labels.data(),
                               labels.size() * sizeof(int32_t));
  plan_->device().CopyToDevice(execution_->input(), pixels.data(), pixels.size() * sizeof(float));
}

LossResult TestTrainer::Gradients(uint64_t step, uint64_t first_sample, uint32_t samples,
                                  uint32_t global_samples, double smoothing) {
  Fill(step, first_sample, samples);
  execution_->Forward(samples, true, {.seed = 9, .step = step, .first_sample = first_sample});
  const LossOptions options{.label_smoothing = smoothing,
                            .scale = 1.0f / static_cast<float>(global_samples)};
  execution_->QueueLoss(samples, options, loss_.as<LossResult>());
  LossResult result;
  plan_->device().CopyToHost(&result, loss_.data(), sizeof(result));
  execution_->Backward(samples, nullptr);
  return result;
}

void TestTrainer::Update() {
  const kernels::UpdateScalars scalars{.learning_rate = 0.05};
  plan_->device().CopyToDevice(scalars_.data(), &scalars, sizeof(scalars));
  plan_->device().kernels().sgd_step({.momentum = 0.9f, .weight_decay = 1e-3},
                                     scalars_.as<kernels::UpdateScalars>(), parameters(),
                                     momentum_.as<float>(), gradients(), elements());
}

std::vector<float> TestTrainer::Exported(const float* flat, const ParameterInfo& info) const {
  std::vector<float> values(CanonicalElements(info));
  EXPECT_TRUE(plan_->ExportFrom(flat, info, absl::MakeSpan(values)).ok()) << info.name;
  return values;
}

std::vector<float> TestTrainer::Parameter(const ParameterInfo& info) const {
  return Exported(parameters_.as<float>(), info);
}

std::vector<float> TestTrainer::Gradient(const ParameterInfo& info) const {
  return Exported(gradients_.as<float>(), info);
}

std::vector<float> TestTrainer::Buffer(const ParameterInfo& info) const {
  std::vector<float> values(CanonicalElements(info));
  EXPECT_TRUE(plan_->Export(info, absl::MakeSpan(values)).ok()) << info.name;
  return values;
}

void TestTrainer::SetParameter(const ParameterInfo& info, absl::Span<const float> values) {
  EXPECT_TRUE(plan_->Import(info, values).ok()) << info.name;
}

const ParameterInfo& TestTrainer::Info(const std::string& name) const {
  for (const ParameterInfo& info : plan_->parameters()) {
    if (info.name == name) return info;
  }
  ADD_FAILURE() << "no parameter " << name;
  return plan_->parameters()[0];
}

void ExpectClose(absl::Span<const float> actual, absl::Span<const float> expected, double tolerance,
                 const std::string& what, double scale) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = scale;
  for (const float value : expected) largest = std::max(largest, std::abs(double{value}));
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << what << " at " << i;
  }
}

void ExpectBuffersClose(const TestTrainer& actual, const TestTrainer& expected) {
  for (const ParameterInfo& info : expected.plan().buffers()) {
    ExpectClose(actual.Buffer(info), expected.Buffer(info), 1e-5, info.name, /*scale=*/0.1);
  }
}

}  // namespace muster::nn
