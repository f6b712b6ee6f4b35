#include "trainer/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status.h"

namespace muster::train {
namespace {

std::vector<std::string> MomentumState(const v1::OptimizerSpec& spec) {
  if (spec.momentum() == 0) return {};
  return {"momentum"};
}

class Sgd final : public Optimizer {
 public:
  Sgd(const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
      const OptimizerOptions& options)
      : Optimizer(spec, parameters, options, MomentumState(spec), /*elementwise=*/true),
        ranges_(DecayRanges(parameters)) {}

 private:
  void Update(const Slice& slice) override {
    ForEachRange(ranges_, slice, [&](size_t begin, size_t count, double weight_decay) {
      const kernels::SgdOptions step_options{
          .momentum = static_cast<float>(spec().momentum()),
          .weight_decay = weight_decay,
          .nesterov = spec().nesterov(),
          .round_to = options().round_to,
      };
      kernels().sgd_step(step_options, slice.scalars, slice.parameters + (begin - slice.begin),
                         state(0, begin), slice.gradients + (begin - slice.begin), count);
    });
  }

  const std::vector<Range> ranges_;
};

class AdamW final : public Optimizer {
 public:
  AdamW(const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
        const OptimizerOptions& options)
      : Optimizer(spec, parameters, options, {"exp_avg", "exp_avg_sq"}, /*elementwise=*/true),
        ranges_(DecayRanges(parameters)) {}

 private:
  void Update(const Slice& slice) override {
    ForEachRange(ranges_, slice, [&](size_t begin, size_t count, double weight_decay) {
      const kernels::AdamWOptions step_options{
          .beta1 = spec().beta1(),
          .beta2 = spec().beta2(),
          .epsilon = spec().epsilon(),
          .weight_decay = weight_decay,
          .round_to = options().round_to,
      };
      kernels().adamw_step(step_options, slice.scalars, slice.parameters + (begin - slice.begin),
                           state(0, begin), state(1, begin),
                           slice.gradients + (begin - slice.begin), count);
    });
  }

  const std::vector<Range> ranges_;
};

// The learning rate of each tensor is proportional to its norm divided by its gradient's norm; see
// kernels::LarsRates. The momentum includes the rate of each step.
class Lars final : public Optimizer {
 public:
  Lars(const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
       const OptimizerOptions& options)
      : Optimizer(spec, parameters, options, MomentumState(spec), /*elementwise=*/false) {
    for (const nn::ParameterInfo& parameter : parameters) {
      tensors_.push_back({.offset = static_cast<int64_t>(parameter.offset),
                          .count = static_cast<int64_t>(parameter.count),
                          .first_piece = step_.pieces,
                          .adapted = !IsExcluded(parameter)});
      step_.pieces += kernels::LarsPieces(tensors_.back().count);
    }
    step_.tensors = static_cast<int64_t>(tensors_.size());
    step_.trust_coefficient = spec.trust_coefficient();
    step_.weight_decay = spec.weight_decay();
    step_.momentum = static_cast<float>(spec.momentum());
    step_.round_to = options.round_to;
  }

 private:
  absl::Status Allocate() override {
    kernels::Device& device = *options().device;
    ASSIGN_OR_RETURN(device_tensors_, kernels::AllocateOn<kernels::LarsTensor>(
                                          device, tensors_.size(), "descriptions of tensors"));
    device.CopyToDevice(device_tensors_.data(), tensors_.data(),
                        tensors_.size() * sizeof(kernels::LarsTensor));
    ASSIGN_OR_RETURN(rates_, kernels::AllocateOn<kernels::UpdateScalars>(device, tensors_.size(),
                                                                         "learning rates"));
    return Optimizer::Allocate();
  }

  // Updates all elements, because norms are those of whole tensors.
  void Update(const Slice& slice) override {
    const auto* const tensors = device_tensors_.as<kernels::LarsTensor>();
    auto* const rates = rates_.as<kernels::UpdateScalars>();
    kernels().lars_rates(step_, tensors, slice.scalars, slice.parameters, slice.gradients, rates);
    kernels().lars_step(step_, tensors, rates, slice.parameters, state(0, 0), slice.gradients);
  }

  kernels::LarsOptions step_;
  std::vector<kernels::LarsTensor> tensors_;
  kernels::DeviceMemory device_tensors_;  // copy of tensors_
  kernels::DeviceMemory rates_;           // by tensor
};

absl::Status Require(bool condition, absl::string_view field, absl::string_view range) {
  if (condition) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("train.optimizer.", field, ": must be ", range));
}

// Same checks as in spec/, except for fields with defaults.
absl::Status Check(const v1::OptimizerSpec& spec) {
  const auto below_one = [](double value) { return value >= 0 && value < 1; };
  const auto not_negative = [](double value) { return value >= 0 && std::isfinite(value); };
  RETURN_IF_ERROR(Require(not_negative(spec.weight_decay()), "weight_decay", "0 or more"));
  RETURN_IF_ERROR(Require(not_negative(spec.clip_norm()), "clip_norm", "0 or more"));
  if (spec.name() == "adamw") {
    RETURN_IF_ERROR(Require(below_one(spec.beta1()), "beta1", "from 0 to below 1"));
    RETURN_IF_ERROR(Require(below_one(spec.beta2()), "beta2", "from 0 to below 1"));
    return Require(spec.epsilon() > 0, "epsilon", "above 0");
  }
  RETURN_IF_ERROR(Require(below_one(spec.momentum()), "momentum", "from 0 to below 1"));
  if (spec.name() == "lars") {
    return Require(spec.trust_coefficient() > 0, "trust_coefficient", "above 0");
  }
  return Require(!spec.nesterov() || spec.momentum() > 0, "momentum", "above 0 with nesterov");
}

}  // namespace

kernels::UpdateRules UpdateRulesOf(const v1::OptimizerSpec& spec) {
  return {.clip_norm = spec.clip_norm(), .beta1 = spec.beta1(), .beta2 = spec.beta2()};
}

absl::StatusOr<std::unique_ptr<Optimizer>> Optimizer::Create(
    const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
    const OptimizerOptions& options) {
  RETURN_IF_ERROR(Check(spec));
  std::unique_ptr<Optimizer> optimizer;
  if (spec.name().empty() || spec.name() == "sgd") {
    optimizer = std::make_unique<Sgd>(spec, parameters, options);
  } else if (spec.name() == "adamw") {
    optimizer = std::make_unique<AdamW>(spec, parameters, options);
  } else if (spec.name() == "lars") {
    optimizer = std::make_unique<Lars>(spec, parameters, options);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("train.optimizer.name: unknown '", spec.name(),
                                                   "'; one of: sgd, adamw, lars"));
  }
  RETURN_IF_ERROR(optimizer->Allocate());
  return optimizer;
}

Optimizer::Optimizer(const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
                     const OptimizerOptions& options, std::vector<std::string> state_names,
                     bool elementwise)
    : spec_(spec), options_(options), elementwise_(elementwise) {
  for (const nn::ParameterInfo& parameter : parameters) {
    elements_ = std::max(elements_, parameter.offset + parameter.count);
  }
  for (std::string& name : state_names) {
    states_.push_back({std::move(name), kernels::DeviceFloats()});
  }
}

absl::Status Optimizer::Allocate() { return options_.deferred ? absl::OkStatus() : KeepAll(); }

absl::Status Optimizer::KeepShare(size_t begin, size_t count) {
  const size_t end = begin + count;
  if (begin == kept_begin_ && end == kept_end_) return absl::OkStatus();
  const size_t common_begin = std::max(begin, kept_begin_);
  const size_t common_end = std::min(end, kept_end_);
  for (OptimizerState& state : states_) {
    ASSIGN_OR_RETURN(kernels::DeviceFloats kept,
                     kernels::DeviceFloats::Create(*options_.device, count, "optimizer states"));
    if (common_begin < common_end) {
      options_.device->Copy(kept.get() + (common_begin - begin),
                            state.values.get() + (common_begin - kept_begin_),
                            (common_end - common_begin) * sizeof(float));
    }
    state.values = std::move(kept);
  }
  kept_begin_ = begin;
  kept_end_ = end;
  return absl::OkStatus();
}

void Optimizer::MoveStates(float* memory) {
  for (OptimizerState& state : states_) {
    options_.device->Copy(memory, state.values.get(), elements_ * sizeof(float));
    state.values = kernels::DeviceFloats::Refer(memory, elements_);
    memory += elements_;
  }
}

bool Optimizer::IsExcluded(const nn::ParameterInfo& parameter) const {
  return spec_.exclude_norm_and_bias() && parameter.shape.size() <= 1;
}

std::vector<Optimizer::Range> Optimizer::DecayRanges(
    absl::Span<const nn::ParameterInfo> parameters) const {
  std::vector<Range> ranges;
  for (const nn::ParameterInfo& parameter : parameters) {
    const double weight_decay = IsExcluded(parameter) ? 0 : spec_.weight_decay();
    if (!ranges.empty() && ranges.back().weight_decay == weight_decay &&
        ranges.back().offset + ranges.back().count == parameter.offset) {
      ranges.back().count += parameter.count;
    } else {
      ranges.push_back({parameter.offset, parameter.count, weight_decay});
    }
  }
  return ranges;
}

void Optimizer::Step(const kernels::UpdateScalars* scalars, float* parameters,
                     const float* gradients) {
  Update({scalars, 0, elements_, parameters, gradients});
}

void Optimizer::StepRange(const kernels::UpdateScalars* scalars, size_t begin, size_t count,
                          float* parameters, const float* gradients) {
  Update({scalars, begin, begin + count, parameters, gradients});
}

}  // namespace muster::train
