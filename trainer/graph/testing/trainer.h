// A plan with its arrays, trained on batches that are a function of (step, global sample index).
#ifndef MUSTER_TRAINER_GRAPH_TESTING_TRAINER_H_
#define MUSTER_TRAINER_GRAPH_TESTING_TRAINER_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "trainer/graph/plan.h"

namespace muster::nn {

size_t CanonicalElements(const ParameterInfo& info);

class TestTrainer {
 public:
  // Trains with seed 9; parameters are initialised with seed 5.
  TestTrainer(const Graph& graph, const CompileOptions& options);
  // `plan` must be compiled from `graph`.
  TestTrainer(const Graph& graph, std::unique_ptr<Plan> plan);
  // Trains with `execution`, whose arrays have the layout of `plan`. Both must be compiled from
  // `graph` and outlive the trainer.
  TestTrainer(const Graph& graph, Plan* plan, Execution* execution);

  Plan& plan() { return *plan_; }
  const Plan& plan() const { return *plan_; }
  Execution& execution() { return *execution_; }
  float* parameters() { return parameters_.as<float>(); }
  float* gradients() { return gradients_.as<float>(); }
  size_t elements() const { return plan_->parameter_elements(); }
  int64_t classes() const { return classes_; }
  int64_t image_elements() const { return image_elements_; }

  // Fills the batch with normal noise and a signal that depends on the label.
  void Fill(uint64_t step, uint64_t first_sample, uint32_t samples);
  // Runs forward, loss and backward of a step on the filled samples.
  LossResult Gradients(uint64_t step, uint64_t first_sample, uint32_t samples,
                       uint32_t global_samples, double smoothing = 0.1);
  // Updates the parameters by SGD with momentum.
  void Update();

  // Values in canonical order, from a flat array with the parameters' layout, or from the buffers.
  std::vector<float> Exported(const float* flat, const ParameterInfo& info) const;
  std::vector<float> Parameter(const ParameterInfo& info) const;
  std::vector<float> Gradient(const ParameterInfo& info) const;
  std::vector<float> Buffer(const ParameterInfo& info) const;
  void SetParameter(const ParameterInfo& info, absl::Span<const float> values);
  // The parameter's description; if it does not exist, fails the test and returns the first one.
  const ParameterInfo& Info(const std::string& name) const;

 private:
  const int64_t image_elements_;
  int64_t classes_ = 0;
  std::unique_ptr<Plan> own_plan_;
  Plan* const plan_;
  Execution* const execution_;  // the plan by default
  kernels::DeviceMemory loss_;
  kernels::DeviceMemory parameters_;
  kernels::DeviceMemory gradients_;
  kernels::DeviceMemory momentum_;
  kernels::DeviceMemory buffers_;
  kernels::DeviceMemory scalars_;
};

// Checks each value within tolerance * max(largest expected value, scale).
void ExpectClose(absl::Span<const float> actual, absl::Span<const float> expected, double tolerance,
                 const std::string& what, double scale = 1e-3);

// Compares the running statistics of two plans; means may be small relative to the deviations.
void ExpectBuffersClose(const TestTrainer& actual, const TestTrainer& expected);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_TESTING_TRAINER_H_
