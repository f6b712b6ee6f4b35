// Optimizers on the plan's flat arrays: SGD, AdamW and LARS.
#ifndef MUSTER_TRAINER_OPTIM_OPTIMIZER_H_
#define MUSTER_TRAINER_OPTIM_OPTIMIZER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/data_type.h"
#include "kernels/device.h"
#include "kernels/device_floats.h"
#include "kernels/update.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/plan.h"

namespace muster::train {

// Optimizer state with one value per parameter element: a flat array in the plan's layout, or this
// rank's shard of it, in device memory. Zero before the first step.
struct OptimizerState {
  std::string name;  // momentum; exp_avg, exp_avg_sq
  kernels::DeviceFloats values;
};

struct OptimizerOptions {
  // Type to which parameters and states are rounded after each update; the arrays remain float32.
  kernels::DataType round_to = kernels::DataType::kFloat32;
  // Device of all arrays; outlives the optimizer.
  kernels::Device* device = &kernels::CpuDevice();
  // Do not allocate states until KeepShare or KeepAll is called.
  bool deferred = false;
};

// Update rules from the optimizer spec, without those for loss scaling and averages.
kernels::UpdateRules UpdateRulesOf(const v1::OptimizerSpec& spec);

// A step is a function of its arguments and states(): equal arrays in the same layout give
// bit-identical results on all ranks with the same instruction set. Used by one training thread.
class Optimizer {
 public:
  // `spec` must have the coordinator's defaults filled in. `parameters` are the plan's.
  // INVALID_ARGUMENT names the field. RESOURCE_EXHAUSTED if out of device memory.
  static absl::StatusOr<std::unique_ptr<Optimizer>> Create(
      const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
      const OptimizerOptions& options = {});
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  absl::Span<const OptimizerState> states() const { return states_; }

  // Restricts states() to elements [begin, begin + count), or extends them to all elements;
  // elements without a previous state become zero. Reallocates one array at a time, so peak memory
  // is that of all complete arrays plus one shard. Must not be called after a step was captured in
  // a graph, because the arrays move. RESOURCE_EXHAUSTED if out of device memory; the optimizer
  // must not be used afterwards.
  absl::Status KeepShare(size_t begin, size_t count);
  absl::Status KeepAll() { return KeepShare(0, elements_); }

  // Moves states() to external memory [states][elements], which outlives their use: they must
  // cover all elements, and KeepShare moves them to memory of their own again.
  void MoveStates(float* memory);

  // Address of state `index` of `element`, which must be kept or the end of what is kept. Null if
  // the optimizer has no such state.
  float* state(size_t index, size_t element) const {
    return index < states_.size() ? states_[index].values.get() + (element - kept_begin_) : nullptr;
  }

  // Updates all parameters. parameters, gradients: flat float32 arrays in the plan's layout with
  // zero padding. Only issues device calls, the same in every step; what varies is in *scalars, in
  // device memory.
  void Step(const kernels::UpdateScalars* scalars, float* parameters, const float* gradients);

  // Whether elements are updated independently, so that a step may be divided: false if the spec
  // clips or if rates depend on a tensor's norm.
  bool elementwise() const { return elementwise_ && spec_.clip_norm() == 0; }

  // Updates only elements [begin, begin + count), which states() must cover. Requires
  // elementwise(), or that the spec clips and *scalars were computed from the norm of all
  // gradients. parameters and gradients point to element `begin`.
  void StepRange(const kernels::UpdateScalars* scalars, size_t begin, size_t count,
                 float* parameters, const float* gradients);

 protected:
  // Consecutive parameters with the same settings; grouped to reduce the number of kernel calls.
  struct Range {
    size_t offset;
    size_t count;
    double weight_decay;
  };

  // Arguments of Step for a range of the arrays.
  struct Slice {
    const kernels::UpdateScalars* scalars;
    size_t begin, end;
    float* parameters;       // points to element `begin`
    const float* gradients;  // points to element `begin`
  };

  Optimizer(const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
            const OptimizerOptions& options, std::vector<std::string> state_names,
            bool elementwise);

  // Allocates the arrays in device memory; called once, by Create. RESOURCE_EXHAUSTED.
  virtual absl::Status Allocate();
  // Whether exclude_norm_and_bias applies to this parameter. Parameters of norms and biases are
  // those with one dimension.
  bool IsExcluded(const nn::ParameterInfo& parameter) const;
  // Ranges of parameters with and without weight decay.
  std::vector<Range> DecayRanges(absl::Span<const nn::ParameterInfo> parameters) const;
  // Calls visit(begin, count, weight_decay) for the intersection of each range with the slice.
  template <typename Visit>
  static void ForEachRange(absl::Span<const Range> ranges, const Slice& slice, const Visit& visit) {
    for (const Range& range : ranges) {
      const size_t begin = std::max(range.offset, slice.begin);
      const size_t end = std::min(range.offset + range.count, slice.end);
      if (begin < end) visit(begin, end - begin, range.weight_decay);
    }
  }
  const kernels::KernelTable& kernels() const { return options_.device->kernels(); }
  const v1::OptimizerSpec& spec() const { return spec_; }
  const OptimizerOptions& options() const { return options_; }

 private:
  virtual void Update(const Slice& slice) = 0;

  const v1::OptimizerSpec spec_;
  const OptimizerOptions options_;
  const bool elementwise_;
  size_t elements_ = 0;  // size of the flat arrays
  // Range of elements in states_.
  size_t kept_begin_ = 0, kept_end_ = 0;
  std::vector<OptimizerState> states_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OPTIM_OPTIMIZER_H_
