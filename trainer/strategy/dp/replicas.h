// Model replicas on several devices of one process, with a thread per device. Each device computes
// its share of the batch, as in torch.nn.DataParallel.
//
//   first device:  batch ──┬ scatter                  gather ┬── loss ──┬ scatter          ┬ reduce
//   each device:           └─ slice ─ replicate ─ forward ───┘          └─ gradient ─ backward ┘
//
// Callers see a single execution on the first device, whose batch, logits and logits' gradient are
// those of the whole batch and which has the bound arrays.
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
  // At least one device; they outlive the replicas. Either all have their own memory or all use
  // host memory; in host memory parameters are shared instead of replicated.
  std::vector<kernels::Device*> devices;
  // Views per image; these consecutive samples stay on one device.
  uint32_t views = 1;
};

// Time spent in each phase of steps and evaluations since the replicas were compiled.
struct ReplicaTimes {
  absl::Duration scatter, replicate, forward, gather, scatter_gradient, backward, reduce;

  absl::Duration sum() const {
    return scatter + replicate + forward + gather + scatter_gradient + backward + reduce;
  }
};

// Used by one training thread; owns the threads of the devices.
class Replicas final : public nn::Execution {
 public:
  // compiling.device is ignored; compiling.max_batch is the batch size of all devices together.
  // Returns nn::Compile's errors; INVALID_ARGUMENT for a pipeline stage or several micro-batches in
  // flight.
  static absl::StatusOr<std::unique_ptr<Replicas>> Compile(const nn::Graph& graph,
                                                           const nn::CompileOptions& compiling,
                                                           const ReplicaOptions& options);
  ~Replicas() override;

  size_t size() const { return replicas_.size(); }
  // Plan of one device. The first plan uses the bound arrays.
  nn::Plan& plan(size_t device) const { return *replicas_[device].plan; }
  // Threads of the devices; idle between passes.
  kernels::ThreadPool& threads() { return threads_; }

  const std::vector<kernels::Device*>& devices() const { return options_.devices; }
  const ReplicaTimes& times() const { return times_; }
  // Time in forward and backward passes since the replicas were compiled.
  absl::Duration busy(size_t device) const { return replicas_[device].busy; }
  // Whether the device uses the parameters of the first device.
  bool shares_parameters(size_t device) const { return host_memory_ && device > 0; }
  // Bytes on the first device for the whole batch, its outputs and staged gradients.
  size_t gathered_bytes() const;

  kernels::Device& device() const override { return first().device(); }
  // Not supported: host threads take part in each pass.
  bool supports_graph_capture() const override { return false; }
  void Bind(float* parameters, float* gradients, float* buffers) override;
  // `reducer` receives the sums over the replicas.
  void set_statistics_reducer(nn::StatisticsReducer* reducer) override { sum_.set_outer(reducer); }
  float* input() override { return input_.as<float>(); }
  int32_t* labels() override { return labels_.as<int32_t>(); }
  using nn::Execution::Forward;
  void SetStep(const nn::StepContext& context) override { step_ = context; }
  void Forward(uint32_t samples, bool training) override;
  absl::Span<const float> logits(uint32_t samples) const override {
    return {logits_.as<float>(), samples * output_elements_};
  }
  void QueueLoss(uint32_t samples, const nn::LossOptions& options, nn::LossResult* result) override;
  float* output_gradient() override { return output_gradient_.as<float>(); }
  void Backward(uint32_t samples, const std::function<void(size_t offset)>& ready) override;
  absl::Duration kernel_time() const override { return times_.sum() + loss_time_; }

 private:
  struct Replica {
    std::unique_ptr<nn::Plan> plan;
    std::unique_ptr<ReplicaReducer> reducer;
    // Null for the first replica; parameters only if devices have their own memory.
    kernels::DeviceMemory parameters, gradients, buffers;
    float* bound_parameters = nullptr;
    float* bound_gradients = nullptr;
    float* bound_buffers = nullptr;
    size_t begin = 0, end = 0;  // samples of this call
    absl::Duration busy;        // time in forward and backward passes

    uint32_t samples() const { return static_cast<uint32_t>(end - begin); }
  };

  Replicas(const ReplicaOptions& options, uint32_t max_samples);
  absl::Status CompilePlans(const nn::Graph& graph, nn::CompileOptions compiling);
  absl::Status Allocate(const nn::CompileOptions& compiling);
  nn::Plan& first() const { return *replicas_.front().plan; }
  void SplitSamples(uint32_t samples);
  // Runs `work` for all replicas concurrently, each on its thread, and waits for the devices. Adds
  // the time to `phase` and, with `busy`, to each replica's busy time.
  void Run(absl::Duration ReplicaTimes::*phase, absl::FunctionRef<void(Replica& replica)> work,
           bool busy = false);
  // Sums the gradients of all replicas into those of the first, using all threads in host memory.
  void Reduce();

  const ReplicaOptions options_;
  const uint32_t max_samples_;
  const bool host_memory_;
  kernels::ThreadPool threads_;
  ReplicaSum sum_;
  std::vector<Replica> replicas_;
  size_t input_elements_ = 0;   // elements of a sample
  size_t output_elements_ = 0;  // elements of a sample
  nn::StepContext step_;
  // On the first device, for the whole batch.
  kernels::DeviceMemory input_, labels_, logits_, output_gradient_;
  kernels::DeviceMemory staged_gradients_;  // copy of another device's gradients
  ReplicaTimes times_;
  absl::Duration loss_time_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DP_REPLICAS_H_
