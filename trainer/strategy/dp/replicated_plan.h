// One plan for several devices that one process drives, with a thread for each: the model is
// replicated, and each device computes its share of the rows. (torch.nn.DataParallel's way.)
//
//   first device:  batch ──┬ scatter                  gather ┬── loss ──┬ scatter          ┬ reduce
//   each device:           └─ rows ─ replicate ─ forward ────┘          └─ gradient ─ backward ┘
//
// Whoever calls sees one plan on the first device: the arrays that it is bound to, its batch, its
// logits and their gradient are there, and hold all rows.
#ifndef MUSTER_TRAINER_STRATEGY_DP_REPLICATED_PLAN_H_
#define MUSTER_TRAINER_STRATEGY_DP_REPLICATED_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device.h"
#include "kernels/thread_pool.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/dp/replica_reducer.h"

namespace muster::nn {

struct ReplicaOptions {
  // At least one; they outlive the plan. All with memory of their own, or all with the process's,
  // where parameters are shared and not replicated.
  std::vector<kernels::Device*> devices;
  // So many neighbouring rows are always on one device.
  uint32_t rows_per_sample = 1;
};

// For one thread, as any plan; it brings those of the other devices.
class ReplicatedPlan final : public Plan {
 public:
  // compiling.device is ignored, and compiling.max_batch of all devices. Compile's errors;
  // INVALID_ARGUMENT for a part of a model or several slots.
  static absl::StatusOr<std::unique_ptr<ReplicatedPlan>> Make(const Graph& graph,
                                                              const CompileOptions& compiling,
                                                              const ReplicaOptions& options);
  ~ReplicatedPlan() override;

  absl::Span<const ParameterInfo> parameters() const override { return first().parameters(); }
  absl::Span<const ParameterInfo> buffers() const override { return first().buffers(); }
  size_t parameter_elements() const override { return first().parameter_elements(); }
  size_t buffer_elements() const override { return first().buffer_elements(); }
  size_t arena_bytes() const override;
  std::string layout_digest() const override { return first().layout_digest(); }
  std::vector<OperationDescription> Describe() const override { return first().Describe(); }

  void Bind(float* parameters, float* gradients, float* buffers) override;
  void set_statistics_reducer(StatisticsReducer* reducer) override;
  absl::Status Import(const ParameterInfo& parameter, absl::Span<const float> values) override {
    return first().Import(parameter, values);
  }
  absl::Status Export(const ParameterInfo& parameter, absl::Span<float> values) const override {
    return first().Export(parameter, values);
  }
  void Initialize(uint64_t seed) override { first().Initialize(seed); }
  absl::Status ImportInto(float* flat, const ParameterInfo& parameter,
                          absl::Span<const float> values) const override {
    return first().ImportInto(flat, parameter, values);
  }
  absl::Status ExportFrom(const float* flat, const ParameterInfo& parameter,
                          absl::Span<float> values) const override {
    return first().ExportFrom(flat, parameter, values);
  }

  kernels::Device& device() const override { return first().device(); }
  // Threads of the process do a part of each pass.
  bool records() const override { return false; }
  kernels::ThreadPool* threads() override { return &threads_; }
  float* input() override { return input_.as<float>(); }
  int32_t* labels() override { return labels_.as<int32_t>(); }

  using Plan::Forward;
  void SetStep(const StepContext& context) override { step_ = context; }
  void Forward(uint32_t rows, bool training) override;
  void QueueLoss(uint32_t rows, const LossOptions& options, LossResult* result) override;
  LossResult Loss(uint32_t rows, double label_smoothing, double scale) override;
  float* output_gradient() override { return output_gradient_.as<float>(); }
  void Backward(uint32_t rows, const std::function<void(size_t offset)>& ready) override;
  absl::Span<const float> logits(uint32_t rows) const override {
    return {logits_.as<float>(), rows * output_elements_};
  }

  absl::Duration kernel_time() const override;
  absl::Span<const PlanPart> parts() const override { return spent_; }
  std::vector<DeviceUse> devices() const override;

 private:
  enum Part {
    kScatter,
    kReplicate,
    kForward,
    kGather,
    kScatterGradient,
    kBackward,
    kReduce,
    kParts
  };

  struct Replica {
    std::unique_ptr<Plan> plan;
    std::unique_ptr<ReplicaReducer> reducer;
    // Of all but the first; parameters only where devices have memory of their own.
    kernels::DeviceMemory parameters, gradients, buffers;
    float* bound_parameters = nullptr;
    float* bound_gradients = nullptr;
    float* bound_buffers = nullptr;
    size_t begin = 0, end = 0;  // of the rows of this call
    absl::Duration busy;        // in forward and backward

    uint32_t rows() const { return static_cast<uint32_t>(end - begin); }
  };

  ReplicatedPlan(const ReplicaOptions& options, uint32_t max_rows);
  absl::Status Compile(const Graph& graph, CompileOptions compiling);
  absl::Status Allocate(const CompileOptions& compiling);
  Plan& first() const { return *replicas_.front().plan; }
  void Share(uint32_t rows);
  // For each replica, in its thread, at the same time; returns when the devices are done. `busy`:
  // counted as the replica's.
  void Run(Part part, absl::FunctionRef<void(Replica& replica)> work, bool busy = false);
  // By the threads together into the first device's.
  void Reduce();

  const ReplicaOptions options_;
  const uint32_t max_rows_;
  const bool host_memory_;
  kernels::ThreadPool threads_;
  ReplicaSum sum_;
  std::vector<Replica> replicas_;
  size_t input_elements_ = 0;   // of a row
  size_t output_elements_ = 0;  // of a row
  StepContext step_;
  // On the first device, of all rows.
  kernels::DeviceMemory input_, labels_, logits_, output_gradient_, loss_;
  kernels::DeviceMemory staged_gradients_;  // another device's, as they are added
  std::array<PlanPart, kParts> spent_ = {{{"scatter", {}},
                                          {"replicate", {}},
                                          {"forward", {}},
                                          {"gather", {}},
                                          {"scatter_gradient", {}},
                                          {"backward", {}},
                                          {"reduce", {}}}};
  absl::Duration loss_time_;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_STRATEGY_DP_REPLICATED_PLAN_H_
