// What a training minimises: from a plan's outputs to the loss and the gradient that backward
// starts from.
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

// Whether the objective needs ProcessGroups::local_group.
bool NeedsLocalGroup(const v1::ObjectiveSpec& spec);

// For the training thread of one generation.
class Objective {
 public:
  // `spec` with its defaults filled in. max_rows: the plan's CompileOptions::max_batch;
  // output_width: elements of a row of its output; device: the plan's. `groups` outlives the
  // objective. Collective where the objective exchanges anything. Errors: INVALID_ARGUMENT for a
  // spec that it cannot serve; the communicators'.
  static absl::StatusOr<std::unique_ptr<Objective>> Create(
      const v1::ObjectiveSpec& spec, const ProcessGroups& groups, uint32_t max_rows,
      int64_t output_width, kernels::Device& device = kernels::CpuDevice());
  virtual ~Objective() = default;

  // Rows that each sample needs: its augmented views, one after the other.
  virtual uint32_t views() const = 0;

  // What the gradient is multiplied by, in the memory of the model's device; null, as at first: 1.
  // The loss stays as it is.
  void set_loss_scale(const double* scale) { loss_scale_ = scale; }

  // Whether Queue only calls the device, alike in every step with as many rows.
  virtual bool supports_graph_capture() const { return false; }

  // Spent in computing since Create; what the model's execution computes of it is in its own count.
  absl::Duration kernel_time() const { return kernel_time_; }

  // After model.Forward of the same rows. The loss, to *result in the memory of the model's device,
  // is summed over this rank's rows; whoever wants the mean divides the ranks' sum by global_rows
  // (views times the samples of the global batch). When training, writes model.output_gradient():
  // that of the mean, as far as it is this rank's rows', times the loss scale.
  //
  // An objective that compares ranks' samples is collective: every rank calls it equally often,
  // also with zero rows. Errors: the communicators'.
  virtual absl::Status Queue(nn::Execution& model, uint32_t rows, uint64_t global_rows,
                             bool training, nn::LossResult* result) = 0;
  // The same, for which it waits.
  absl::StatusOr<nn::LossResult> Compute(nn::Execution& model, uint32_t rows, uint64_t global_rows,
                                         bool training);

 protected:
  // From the gradient of a sum to that of the mean.
  static double GradientScale(uint64_t global_rows) {
    return 1 / static_cast<double>(std::max<uint64_t>(1, global_rows));
  }
  const double* loss_scale() const { return loss_scale_; }

  absl::Duration kernel_time_;

 private:
  const double* loss_scale_ = nullptr;
  kernels::DeviceMemory result_;  // of Compute
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OBJECTIVE_OBJECTIVE_H_
