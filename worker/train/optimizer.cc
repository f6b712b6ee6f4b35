#include "worker/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status.h"

namespace muster::train {
namespace {

float* At(float* array, size_t offset) { return array == nullptr ? nullptr : array + offset; }

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
  void Update(const Part& part) override {
    ForEachRange(ranges_, part, [&](size_t begin, size_t count, double weight_decay) {
      const kernels::SgdOptions step_options{
          .momentum = static_cast<float>(spec().momentum()),
          .weight_decay = weight_decay,
          .nesterov = spec().nesterov(),
          .round_to = options().round_to,
      };
      kernels().sgd_step(step_options, part.scalars, part.parameters + (begin - part.begin),
                         At(state(0), begin), part.gradients + (begin - part.begin), count);
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
  void Update(const Part& part) override {
    ForEachRange(ranges_, part, [&](size_t begin, size_t count, double weight_decay) {
      const kernels::AdamWOptions step_options{
          .beta1 = spec().beta1(),
          .beta2 = spec().beta2(),
          .epsilon = spec().epsilon(),
          .weight_decay = weight_decay,
          .round_to = options().round_to,
      };
      kernels().adamw_step(step_options, part.scalars, part.parameters + (begin - part.begin),
                           state(0) + begin, state(1) + begin,
                           part.gradients + (begin - part.begin), count);
    });
  }

  const std::vector<Range> ranges_;
};

// Each tensor learns at a rate in proportion to its own norm over that of its gradient: see
// kernels::LarsRates. The velocity holds the rate of its time.
class Lars final : public Optimizer {
 public:
  Lars(const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
       const OptimizerOptions& options)
      : Optimizer(spec, parameters, options, MomentumState(spec), /*elementwise=*/false) {
    for (const nn::ParameterInfo& parameter : parameters) {
      const bool adapted = !IsExcluded(parameter);
      tensors_.push_back({parameter.offset, parameter.count, adapted, adapted_});
      if (adapted) ++adapted_;
    }
    for (Tensor& tensor : tensors_) {
      if (!tensor.adapted) tensor.rate = adapted_;
    }
    squares_ = AllocateOn<double>(*options.device, 2 * adapted_);
    rates_ = AllocateOn<kernels::UpdateScalars>(*options.device, adapted_ + 1);
  }

 private:
  struct Tensor {
    size_t offset;
    size_t count;
    bool adapted;
    size_t rate;  // which one is its own; the last is for all that are not adapted
  };

  // Of all elements: norms are of whole tensors.
  void Update(const Part& part) override {
    auto* const squares = squares_.as<double>();
    for (const Tensor& tensor : tensors_) {
      if (!tensor.adapted) continue;
      double* const own = squares + 2 * tensor.rate;
      kernels().sum_of_squares(part.parameters + tensor.offset, tensor.count, own);
      kernels().sum_of_squares(part.gradients + tensor.offset, tensor.count, own + 1);
    }
    auto* const rates = rates_.as<kernels::UpdateScalars>();
    kernels().lars_rates({.tensors = static_cast<int64_t>(adapted_),
                          .trust_coefficient = spec().trust_coefficient(),
                          .weight_decay = spec().weight_decay()},
                         part.scalars, squares, rates);
    for (const Tensor& tensor : tensors_) {
      const kernels::SgdOptions step_options{
          .momentum = static_cast<float>(spec().momentum()),
          .weight_decay = tensor.adapted ? spec().weight_decay() : 0,
          .round_to = options().round_to,
      };
      kernels().sgd_step(step_options, rates + tensor.rate, part.parameters + tensor.offset,
                         At(state(0), tensor.offset), part.gradients + tensor.offset, tensor.count);
    }
  }

  std::vector<Tensor> tensors_;
  size_t adapted_ = 0;
  kernels::DeviceMemory squares_;  // by adapted tensor: of its values, of its gradient
  kernels::DeviceMemory rates_;
};

absl::Status Require(bool condition, absl::string_view field, absl::string_view range) {
  if (condition) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("train.optimizer.", field, " must be ", range));
}

// As common/spec does, except for what it fills in.
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
                                                   "'; known are sgd, adamw, lars"));
  }
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
    states_.push_back({std::move(name), DeviceFloats(*options_.device, elements_)});
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

void Optimizer::StepPart(const kernels::UpdateScalars* scalars, size_t begin, size_t count,
                         float* parameters, const float* gradients) {
  Update({scalars, begin, begin + count, parameters, gradients});
}

}  // namespace muster::train
