// Training objectives: compute the loss and the gradient of the model's outputs.
#ifndef MUSTER_TRAINER_OBJECTIVE_OBJECTIVE_H_
#define MUSTER_TRAINER_OBJECTIVE_OBJECTIVE_H_

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/execution.h"
#include "trainer/strategy/process_groups.h"

namespace muster::train {

// Whether the objective requires ProcessGroups::local_group.
bool NeedsLocalGroup(const v1::ObjectiveSpec& spec);

// Used by the training thread of one generation.
class Objective {
 public:
  // `spec` must have its defaults filled in. max_samples: the plan's CompileOptions::max_batch;
  // output_width: elements per sample of the plan's output; device: the plan's. `groups` outlives
  // the objective. Collective if the objective communicates. INVALID_ARGUMENT for an unsupported
  // spec; the communicators' errors.
  static absl::StatusOr<std::unique_ptr<Objective>> Create(
      const v1::ObjectiveSpec& spec, const ProcessGroups& groups, uint32_t max_samples,
      int64_t output_width, kernels::Device& device = kernels::CpuDevice());
  virtual ~Objective() = default;

  // Samples per image: its augmented views, which are consecutive.
  virtual uint32_t views() const = 0;

  // Sets a factor for the gradient, in the memory of the model's device; null (default): 1. The
  // loss is not scaled.
  void set_loss_scale(const double* scale) { loss_scale_ = scale; }

  // Whether Queue only issues device calls, the same in every step with the same number of samples.
  virtual bool supports_graph_capture() const { return false; }

  // Compute time since Create, without the part that the model's execution counts itself.
  absl::Duration kernel_time() const { return kernel_time_; }

  // Called after model.Forward of the same samples. Writes the loss, summed over this rank's
  // samples, to *result in the memory of the model's device; for the mean, divide the sum over all
  // ranks by global_samples (of the global batch, all views counted). In training, also writes
  // model.output_gradient(): the gradient of the mean loss for this rank's samples, times the loss
  // scale.
  //
  // An objective that compares samples of different ranks is collective: all ranks must make the
  // same number of calls, also with zero samples. Returns the communicators' errors.
  virtual absl::Status Queue(nn::Execution& model, uint32_t samples, uint64_t global_samples,
                             bool training, nn::LossResult* result) = 0;
  // Same as Queue, but waits for the result and returns it.
  absl::StatusOr<nn::LossResult> Compute(nn::Execution& model, uint32_t samples,
                                         uint64_t global_samples, bool training);

 protected:
  // Factor from the gradient of the sum to that of the mean.
  static double GradientScale(uint64_t global_samples) {
    return 1 / static_cast<double>(std::max<uint64_t>(1, global_samples));
  }
  const double* loss_scale() const { return loss_scale_; }

  absl::Duration kernel_time_;

 private:
  const double* loss_scale_ = nullptr;
  kernels::DeviceMemory result_;  // result of Compute
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OBJECTIVE_OBJECTIVE_H_
