// Computes the scalars of each step's update on the device and reads step results back
// asynchronously: steps are queued, and their records are read when they complete.
#ifndef MUSTER_TRAINER_OPTIM_UPDATE_CONTROLLER_H_
#define MUSTER_TRAINER_OPTIM_UPDATE_CONTROLLER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/update.h"

namespace muster::train {

// Used by one training thread. Steps are consecutive; each calls Begin, Decide and Finish.
class UpdateController {
 public:
  // Maximum number of steps whose records have not been read, i.e. that the host is ahead of the
  // device.
  static constexpr uint64_t kStepsAhead = 10;

  // rules.records is ignored. Allocates `losses` losses, of which the first `counted` are summed to
  // the step's loss. The device outlives this object. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<UpdateController>> Create(const kernels::UpdateRules& rules,
                                                                  kernels::Device& device,
                                                                  uint32_t counted,
                                                                  uint32_t losses);

  // Location of a loss, and the loss scale, both in device memory. The loss scale is null without
  // loss scaling.
  kernels::LossResult* loss(uint32_t index) const {
    return losses_.as<kernels::LossResult>() + index;
  }
  const double* loss_scale() const {
    return rules_.scales_loss ? &variables()->state.loss_scale.scale : nullptr;
  }
  // Scalars for the update kernels; valid after Decide.
  const kernels::UpdateScalars* scalars() const { return &variables()->scalars; }

  void SetLossScale(const kernels::LossScaleState& state);

  // FAILED_PRECONDITION if kStepsAhead steps have not been read.
  absl::Status Begin(uint64_t step, double learning_rate);
  // Called before Decide. Squared norm of gradients [count], in device memory, to which callers may
  // add that of other shards; null without clipping. Only issues device calls.
  double* SumOfSquares(const float* gradients, size_t count);
  // Computes the scalars from the last SumOfSquares. `finite`: whether all gradients are finite, in
  // device memory; null without loss scaling. `failed`: see UpdateInputs::failed. Only issues
  // device calls, the same in every step.
  void Decide(const bool* finite, const uint32_t* failed = nullptr);
  // SumOfSquares and Decide for all gradients.
  void Decide(const float* gradients, size_t count, const bool* finite,
              const uint32_t* failed = nullptr) {
    SumOfSquares(gradients, count);
    Decide(finite, failed);
  }
  // Called after the update; queues the step's record for reading.
  void Finish();

  // Whether the next step's record is available.
  bool Known() const { return pending() > 0 && events_[next_ % kStepsAhead]->Done(); }
  // Number of steps whose records have not been read.
  uint64_t pending() const { return end_ - next_; }
  // Returns the next step's record, in order. Empty if no step is pending, or if the record is not
  // available and `wait` is false. Returns the device's errors.
  absl::StatusOr<std::optional<kernels::StepRecord>> Read(bool wait);

 private:
  // In device memory.
  struct Variables {
    kernels::StepScalars step;
    kernels::UpdateState state;
    kernels::UpdateScalars scalars;
    double sum_of_squares;
  };

  UpdateController(const kernels::UpdateRules& rules, kernels::Device& device, uint32_t counted);
  // Device address; must not be dereferenced on the host.
  Variables* variables() const { return variables_.as<Variables>(); }

  const kernels::UpdateRules rules_;
  kernels::Device& device_;
  const uint32_t counted_;
  kernels::DeviceMemory variables_;
  kernels::DeviceMemory losses_;  // by accumulation step or micro-batch
  kernels::HostMemory records_;   // written by the device
  std::array<std::unique_ptr<kernels::DeviceEvent>, kStepsAhead> events_;  // by record
  uint64_t next_ = 0;                                                      // next step to be read
  uint64_t end_ = 0;  // end of the finished steps
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OPTIM_UPDATE_CONTROLLER_H_
