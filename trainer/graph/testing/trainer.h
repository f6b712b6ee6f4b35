// A plan with its arrays, fed with batches that are a function of (step, global row).
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
  // Training with seed 9; parameters are initialised with seed 5.
  TestTrainer(const Graph& graph, const CompileOptions& options);
  // `plan` is of the graph.
  TestTrainer(const Graph& graph, std::unique_ptr<Plan> plan);
  // Trains by `execution`, whose arrays are laid out as those of `plan`. Both are of the graph, and
  // outlive the trainer.
  TestTrainer(const Graph& graph, Plan* plan, Execution* execution);

  Plan& plan() { return *plan_; }
  const Plan& plan() const { return *plan_; }
  Execution& execution() { return *execution_; }
  float* parameters() { return parameters_.as<float>(); }
  float* gradients() { return gradients_.as<float>(); }
  size_t elements() const { return plan_->parameter_elements(); }
  int64_t classes() const { return classes_; }
  int64_t image_elements() const { return image_elements_; }

  // Normal noise, to which the label adds something to learn.
  void Fill(uint64_t step, uint64_t first_row, uint32_t rows);
  // Forward, loss and backward of a step on rows that are filled in.
  LossResult Gradients(uint64_t step, uint64_t first_row, uint32_t rows, uint32_t global_rows,
                       double smoothing = 0.1);
  // SGD with momentum.
  void Update();

  // In canonical order, from a flat array like the parameters, or from the buffers.
  std::vector<float> Exported(const float* flat, const ParameterInfo& info) const;
  std::vector<float> Parameter(const ParameterInfo& info) const;
  std::vector<float> Gradient(const ParameterInfo& info) const;
  std::vector<float> Buffer(const ParameterInfo& info) const;
  void SetParameter(const ParameterInfo& info, absl::Span<const float> values);
  // The named parameter's description; fails the test and gives the first one where there is none.
  const ParameterInfo& Info(const std::string& name) const;

 private:
  const int64_t image_elements_;
  int64_t classes_ = 0;
  std::unique_ptr<Plan> own_plan_;
  Plan* const plan_;
  Execution* const execution_;  // the plan, unless it is given
  kernels::DeviceMemory loss_;
  kernels::DeviceMemory parameters_;
  kernels::DeviceMemory gradients_;
  kernels::DeviceMemory momentum_;
  kernels::DeviceMemory buffers_;
  kernels::DeviceMemory scalars_;
};

// Each value within tolerance * (the largest one expected, at least `scale`).
void ExpectClose(absl::Span<const float> actual, absl::Span<const float> expected, double tolerance,
                 const std::string& what, double scale = 1e-3);

// The running statistics of two plans; means may be small beside the deviations.
void ExpectBuffersClose(const TestTrainer& actual, const TestTrainer& expected);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_TESTING_TRAINER_H_
