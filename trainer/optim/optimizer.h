// How gradients change the parameters: SGD, AdamW and LARS over the plan's flat arrays.
#ifndef MUSTER_TRAINER_OPTIM_OPTIMIZER_H_
#define MUSTER_TRAINER_OPTIM_OPTIMIZER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/data_type.h"
#include "kernels/device.h"
#include "kernels/update.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/device_floats.h"

namespace muster::train {

// What an optimizer remembers from step to step of each parameter: a flat array in the plan's
// layout, or the share of one that the rank keeps, zero before the first step, in the device's
// memory.
struct OptimizerState {
  std::string name;  // momentum; exp_avg, exp_avg_sq
  DeviceFloats values;
};

struct OptimizerOptions {
  // Parameters and states are rounded to it after each update; they stay float32 arrays.
  kernels::DataType round_to = kernels::DataType::kFloat32;
  // Where all arrays are; outlives the optimizer.
  kernels::Device* device = &kernels::CpuDevice();
  // No arrays before KeepShare or KeepAll is called.
  bool deferred = false;
};

// What of the spec decides each update; that of the loss's scale and of averages apart.
kernels::UpdateRules UpdateRulesOf(const v1::OptimizerSpec& spec);

// A step is a function of its arguments and of states(): equal arrays in the same layout give equal
// bits on all ranks of one instruction set. For one training thread.
class Optimizer {
 public:
  // `spec` with the coordinator's defaults. `parameters` are the plan's. INVALID_ARGUMENT names the
  // field.
  static absl::StatusOr<std::unique_ptr<Optimizer>> Create(
      const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
      const OptimizerOptions& options = {});
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  absl::Span<const OptimizerState> states() const { return states_; }

  // From now on states() are of the elements [begin, begin + count) alone, or of all; what is not
  // remembered of an element is zero. While one array is remade there are two of it: the peak of
  // the memory is that of all whole arrays and a share. Not once a step was recorded: arrays move.
  void KeepShare(size_t begin, size_t count);
  void KeepAll() { KeepShare(0, elements_); }

  // parameters, gradients: flat float32 arrays in the plan's layout, their padding zero. Only calls
  // the device, alike in every step: what differs is in *scalars, in the device's memory.
  void Step(const kernels::UpdateScalars* scalars, float* parameters, const float* gradients);

  // Whether a step is one of each element by itself, so that it may be done in parts: not where the
  // spec clips, or a rate depends on a tensor's norm.
  bool elementwise() const { return elementwise_ && spec_.clip_norm() == 0; }

  // The part [begin, begin + count) of Step, of what states() are of. Where elementwise(), or where
  // the spec clips and *scalars were decided by the norm of all gradients. parameters and gradients
  // point at element `begin`.
  void StepPart(const kernels::UpdateScalars* scalars, size_t begin, size_t count,
                float* parameters, const float* gradients);

 protected:
  // Neighbouring parameters that are treated alike, so that a step is few kernel calls.
  struct Range {
    size_t offset;
    size_t count;
    double weight_decay;
  };

  // What Step was called with, for a part of the arrays.
  struct Part {
    const kernels::UpdateScalars* scalars;
    size_t begin, end;
    float* parameters;       // from element `begin` on
    const float* gradients;  // from element `begin` on
  };

  Optimizer(const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
            const OptimizerOptions& options, std::vector<std::string> state_names,
            bool elementwise);

  // Whether the spec's exclude_norm_and_bias means this parameter: those of norms and biases are
  // the ones with a single dimension.
  bool IsExcluded(const nn::ParameterInfo& parameter) const;
  // By whether weight decay applies.
  std::vector<Range> DecayRanges(absl::Span<const nn::ParameterInfo> parameters) const;
  // Calls visit(begin, count, weight_decay) for what of each range lies in the part.
  template <typename Visit>
  static void ForEachRange(absl::Span<const Range> ranges, const Part& part, const Visit& visit) {
    for (const Range& range : ranges) {
      const size_t begin = std::max(range.offset, part.begin);
      const size_t end = std::min(range.offset + range.count, part.end);
      if (begin < end) visit(begin, end - begin, range.weight_decay);
    }
  }
  // Of `element`, which is one that is kept. Null where the optimizer has no such state.
  float* state(size_t index, size_t element) const {
    return index < states_.size() ? states_[index].values.get() + (element - kept_begin_) : nullptr;
  }
  const kernels::KernelTable& kernels() const { return options_.device->kernels(); }
  const v1::OptimizerSpec& spec() const { return spec_; }
  const OptimizerOptions& options() const { return options_; }

 private:
  virtual void Update(const Part& part) = 0;

  const v1::OptimizerSpec spec_;
  const OptimizerOptions options_;
  const bool elementwise_;
  size_t elements_ = 0;  // of the flat arrays
  // What states_ are of.
  size_t kept_begin_ = 0, kept_end_ = 0;
  std::vector<OptimizerState> states_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OPTIM_OPTIMIZER_H_
