#include "worker/nn/testing/trainer.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/kernel_table.h"

namespace muster::nn {

size_t CanonicalElements(const ParameterInfo& info) {
  size_t elements = 1;
  for (const int64_t dimension : info.shape) elements *= static_cast<size_t>(dimension);
  return elements;
}

TestTrainer::Array TestTrainer::Allocate(size_t elements, float value) {
  Array array(static_cast<float*>(std::aligned_alloc(64, (elements / 16 + 1) * 64)));
  std::fill_n(array.get(), elements, value);
  return array;
}

TestTrainer::TestTrainer(const Graph& graph, const CompileOptions& options)
    : image_elements_(graph.input.height * graph.input.width * graph.input.channels) {
  auto made = Compile(graph, options);
  EXPECT_TRUE(made.ok()) << made.status();
  plan_ = *std::move(made);
  classes_ = static_cast<int64_t>(plan_->logits(1).size());
  parameters_ = Allocate(plan_->parameter_elements(), 0);
  gradients_ = Allocate(plan_->parameter_elements(), std::nanf(""));
  momentum_ = Allocate(plan_->parameter_elements(), 0);
  buffers_ = Allocate(plan_->buffer_elements(), 0);
  plan_->Bind(parameters_.get(), gradients_.get(), buffers_.get());
  plan_->Initialize(5);
}

void TestTrainer::Fill(uint64_t step, uint64_t first_row, uint32_t rows) {
  for (uint32_t row = 0; row < rows; ++row) {
    std::mt19937 random(static_cast<uint32_t>(step * 100003 + first_row + row));
    std::normal_distribution<float> normal;
    const int64_t label = random() % classes_;
    plan_->labels()[row] = static_cast<int32_t>(label);
    for (int64_t i = 0; i < image_elements_; ++i) {
      plan_->input()[row * image_elements_ + i] =
          normal(random) + (i % classes_ == label ? 1.0f : 0.0f);
    }
  }
}

LossResult TestTrainer::Gradients(uint64_t step, uint64_t first_row, uint32_t rows,
                                  uint32_t global_rows, double smoothing) {
  Fill(step, first_row, rows);
  plan_->Forward(rows, true, {.seed = 9, .step = step, .first_row = first_row});
  const LossResult result = plan_->Loss(rows, smoothing, 1.0f / static_cast<float>(global_rows));
  plan_->Backward(rows, nullptr);
  return result;
}

void TestTrainer::Update() {
  kernels::CpuKernels().sgd_step(
      {.learning_rate = 0.05f, .momentum = 0.9f, .weight_decay = 1e-3f}, parameters_.get(),
      momentum_.get(), gradients_.get(), elements());
}

std::vector<float> TestTrainer::Exported(const float* flat, const ParameterInfo& info) const {
  std::vector<float> values(CanonicalElements(info));
  EXPECT_TRUE(plan_->ExportFrom(flat, info, absl::MakeSpan(values)).ok()) << info.name;
  return values;
}

std::vector<float> TestTrainer::Parameter(const ParameterInfo& info) const {
  return Exported(parameters_.get(), info);
}

std::vector<float> TestTrainer::Gradient(const ParameterInfo& info) const {
  return Exported(gradients_.get(), info);
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
