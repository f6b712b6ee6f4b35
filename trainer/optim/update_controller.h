// What decides each step's update, where the device computes it, and what is told of the step
// afterwards. The process asks nothing of the device meanwhile: steps are queued, and what became
// of them is read when they are done.
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

// For one training thread. Steps are consecutive; each is Begin, Decide, Finish.
class UpdateController {
 public:
  // Steps whose records nobody has read, at most: how far the process may be ahead of the device.
  static constexpr uint64_t kStepsAhead = 10;

  // `rules` but for their number of records. There is room for the losses of `parts`, of which the
  // first `counted` make a step's. The device outlives this. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<UpdateController>> Create(const kernels::UpdateRules& rules,
                                                                  kernels::Device& device,
                                                                  uint32_t counted, uint32_t parts);

  // Where the loss of a part is to be written, and what scales it, in the device's memory; the
  // latter null where it is not scaled.
  kernels::LossResult* loss(uint32_t part) const {
    return losses_.as<kernels::LossResult>() + part;
  }
  const double* loss_scale() const {
    return rules_.scales_loss ? &variables()->state.loss_scale.scale : nullptr;
  }
  // For the update's kernels, after Decide.
  const kernels::UpdateScalars* scalars() const { return &variables()->scalars; }

  void SetLossScale(const kernels::LossScaleState& state);

  // FAILED_PRECONDITION where kStepsAhead steps were not read.
  absl::Status Begin(uint64_t step, double learning_rate);
  // Before Decide: the squared norm of gradients [count], in the device's memory, for whoever adds
  // up those of other shares; null where nothing is clipped. Only calls the device.
  double* SumOfSquares(const float* gradients, size_t count);
  // Of gradients whose SumOfSquares there is, of which `finite` says whether all are finite
  // numbers; null where the loss is not scaled. `failed` as UpdateInputs::failed. Only calls the
  // device, alike in every step.
  void Decide(const bool* finite, const uint32_t* failed = nullptr);
  // Both, of all gradients.
  void Decide(const float* gradients, size_t count, const bool* finite,
              const uint32_t* failed = nullptr) {
    SumOfSquares(gradients, count);
    Decide(finite, failed);
  }
  // After the update. What was told before it of this step is then on its way.
  void Finish();

  // Whether the next step's record is there.
  bool Known() const { return pending() > 0 && events_[next_ % kStepsAhead]->Done(); }
  // Of steps that were not read yet.
  uint64_t pending() const { return end_ - next_; }
  // The next step's record, in order; absent where there is none, or it is not known yet and nobody
  // waits. The device's errors.
  absl::StatusOr<std::optional<kernels::StepRecord>> Read(bool wait);

 private:
  // In the device's memory.
  struct Variables {
    kernels::StepScalars step;
    kernels::UpdateState state;
    kernels::UpdateScalars scalars;
    double sum_of_squares;
  };

  UpdateController(const kernels::UpdateRules& rules, kernels::Device& device, uint32_t counted);
  // An address, not to be read or written here.
  Variables* variables() const { return variables_.as<Variables>(); }

  const kernels::UpdateRules rules_;
  kernels::Device& device_;
  const uint32_t counted_;
  kernels::DeviceMemory variables_;
  kernels::DeviceMemory losses_;                                           // by part
  kernels::HostMemory records_;                                            // written by the device
  std::array<std::unique_ptr<kernels::DeviceEvent>, kStepsAhead> events_;  // by record
  uint64_t next_ = 0;                                                      // step to be read
  uint64_t end_ = 0;  // behind those that were finished
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OPTIM_UPDATE_CONTROLLER_H_
