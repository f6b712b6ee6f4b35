// Replicas of a model on several devices that one process drives, with a thread for each: each
// device computes its share of the batch. (torch.nn.DataParallel's way.)
//
//   first device:  batch ──┬ scatter                  gather ┬── loss ──┬ scatter          ┬ reduce
//   each device:           └─ rows ─ replicate ─ forward ────┘          └─ gradient ─ backward ┘
//
// Callers see one execution on the first device: the arrays that it is bound to, its batch, its
// logits and their gradient are there, and hold the whole batch.
#ifndef MUSTER_TRAINER_STRATEGY_DP_REPLICAS_H_
#define MUSTER_TRAINER_STRATEGY_DP_REPLICAS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/thread_pool.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/dp/replica_reducer.h"

namespace muster::train {

struct ReplicaOptions {
  // At least one; they outlive the replicas. All with memory of their own, or all with the
  // process's, where parameters are shared and not replicated.
  std::vector<kernels::Device*> devices;
  // Views of each sample: so many neighbouring rows are always on one device.
  uint32_t views = 1;
};

// Time spent in the phases of steps and evaluations, since the replicas were compiled.
struct ReplicaTimes {
  absl::Duration scatter, replicate, forward, gather, scatter_gradient, backward, reduce;

  absl::Duration sum() const {
    return scatter + replicate + forward + gather + scatter_gradient + backward + reduce;
  }
};

// For one training thread; it brings those of the other devices.
class Replicas final : public nn::Execution {
 public:
  // compiling.device is ignored; compiling.max_batch is that of all devices together. Errors:
  // Compile's; INVALID_ARGUMENT for a part of a model or several in-flight micro-batches.
  static absl::StatusOr<std::unique_ptr<Replicas>> Compile(const nn::Graph& graph,
                                                           const nn::CompileOptions& compiling,
                                                           const ReplicaOptions& options);
  ~Replicas() override;

  size_t size() const { return replicas_.size(); }
  // Of one device. The first one's arrays are those that are bound.
  nn::Plan& plan(size_t device) const { return *replicas_[device].plan; }
  // Idle between passes.
  kernels::ThreadPool& threads() { return threads_; }

  const ReplicaTimes& times() const { return times_; }
  // In forward and backward passes, since the replicas were compiled.
  absl::Duration busy(size_t device) const { return replicas_[device].busy; }
  // Whether the device computes with the first one's parameters.
  bool shares_parameters(size_t device) const { return host_memory_ && device > 0; }
  // On the first device: the whole batch, its outputs, and gradients on their way.
  size_t gathered_bytes() const;

  kernels::Device& device() const override { return first().device(); }
  // Threads of the process do a part of each pass.
  bool supports_graph_capture() const override { return false; }
  void Bind(float* parameters, float* gradients, float* buffers) override;
  // Sums further what the replicas' statistics add up to.
  void set_statistics_reducer(nn::StatisticsReducer* reducer) override { sum_.set_outer(reducer); }
  float* input() override { return input_.as<float>(); }
  int32_t* labels() override { return labels_.as<int32_t>(); }
  using nn::Execution::Forward;
  void SetStep(const nn::StepContext& context) override { step_ = context; }
  void Forward(uint32_t rows, bool training) override;
  absl::Span<const float> logits(uint32_t rows) const override {
    return {logits_.as<float>(), rows * output_elements_};
  }
  void QueueLoss(uint32_t rows, const nn::LossOptions& options, nn::LossResult* result) override;
  float* output_gradient() override { return output_gradient_.as<float>(); }
  void Backward(uint32_t rows, const std::function<void(size_t offset)>& ready) override;
  absl::Duration kernel_time() const override { return times_.sum() + loss_time_; }

 private:
  struct Replica {
    std::unique_ptr<nn::Plan> plan;
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

  Replicas(const ReplicaOptions& options, uint32_t max_rows);
  absl::Status CompilePlans(const nn::Graph& graph, nn::CompileOptions compiling);
  absl::Status Allocate(const nn::CompileOptions& compiling);
  nn::Plan& first() const { return *replicas_.front().plan; }
  void Share(uint32_t rows);
  // For each replica, in its thread, at the same time; returns when the devices are done. Adds to
  // `phase`, and with `busy` to each replica's busy time.
  void Run(absl::Duration ReplicaTimes::*phase, absl::FunctionRef<void(Replica& replica)> work,
           bool busy = false);
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
  nn::StepContext step_;
  // On the first device, of all rows.
  kernels::DeviceMemory input_, labels_, logits_, output_gradient_;
  kernels::DeviceMemory staged_gradients_;  // another device's, as they are added
  ReplicaTimes times_;
  absl::Duration loss_time_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DP_REPLICAS_H_
