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
          .learning_rate = static_cast<float>(part.learning_rate),
          .momentum = static_cast<float>(spec().momentum()),
          .weight_decay = static_cast<float>(weight_decay),
          .nesterov = spec().nesterov(),
          .gradient_scale = static_cast<float>(part.gradient_scale),
          .round_to = options().round_to,
      };
      kernels().sgd_step(step_options, part.parameters + (begin - part.begin), At(state(0), begin),
                         part.gradients + (begin - part.begin), count);
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
    const auto t = static_cast<double>(part.step + 1);
    ForEachRange(ranges_, part, [&](size_t begin, size_t count, double weight_decay) {
      const kernels::AdamWOptions step_options{
          .learning_rate = part.learning_rate,
          .beta1 = spec().beta1(),
          .beta2 = spec().beta2(),
          .epsilon = spec().epsilon(),
          .weight_decay = weight_decay,
          .bias_correction1 = 1 - std::pow(spec().beta1(), t),
          .bias_correction2 = 1 - std::pow(spec().beta2(), t),
          .gradient_scale = part.gradient_scale,
          .round_to = options().round_to,
      };
      kernels().adamw_step(step_options, part.parameters + (begin - part.begin), state(0) + begin,
                           state(1) + begin, part.gradients + (begin - part.begin), count);
    });
  }

  const std::vector<Range> ranges_;
};

// Layer-wise adaptive rate scaling (You, Gitman & Ginsburg 2017, algorithm 1): each tensor learns
// at a rate in proportion to its own norm over that of its gradient. The velocity holds the rate of
// its time:
//   ratio = trust_coefficient * |w| / (|g| + weight_decay * |w|)
//   velocity = momentum * velocity + learning_rate * ratio * (g + weight_decay * w);  w -= velocity
class Lars final : public Optimizer {
 public:
  Lars(const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters,
       const OptimizerOptions& options)
      : Optimizer(spec, parameters, options, MomentumState(spec), /*elementwise=*/false) {
    for (const nn::ParameterInfo& parameter : parameters) {
      tensors_.push_back({parameter.offset, parameter.count, !IsExcluded(parameter)});
    }
  }

 private:
  struct Tensor {
    size_t offset;
    size_t count;
    bool adapted;
  };

  // Of all elements: norms are of whole tensors.
  void Update(const Part& part) override {
    for (const Tensor& tensor : tensors_) {
      float* const values = part.parameters + tensor.offset;
      const float* const gradient = part.gradients + tensor.offset;
      const double ratio =
          tensor.adapted ? TrustRatio(values, gradient, tensor.count, part.gradient_scale) : 1;
      const double rate = part.learning_rate * ratio;
      // A step of SGD whose gradients carry the rate already.
      const kernels::SgdOptions step_options{
          .learning_rate = 1,
          .momentum = static_cast<float>(spec().momentum()),
          .weight_decay = static_cast<float>(tensor.adapted ? rate * spec().weight_decay() : 0),
          .gradient_scale = static_cast<float>(rate * part.gradient_scale),
          .round_to = options().round_to,
      };
      kernels().sgd_step(step_options, values, At(state(0), tensor.offset), gradient, tensor.count);
    }
  }

  double TrustRatio(const float* values, const float* gradient, size_t count,
                    double gradient_scale) const {
    const double norm = std::sqrt(SumOfSquares(values, count));
    const double gradient_norm = gradient_scale * std::sqrt(SumOfSquares(gradient, count));
    // A tensor of zeros would never learn at a rate in proportion to its norm.
    if (norm == 0 || gradient_norm == 0) return 1;
    return spec().trust_coefficient() * norm / (gradient_norm + spec().weight_decay() * norm);
  }

  std::vector<Tensor> tensors_;
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
  ASSIGN_OR_RETURN(optimizer->sum_, options.device->Allocate(sizeof(double)));
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

double Optimizer::SumOfSquares(const float* x, size_t count) const {
  double sum = 0;
  kernels().sum_of_squares(x, count, sum_.as<double>());
  options_.device->CopyToHost(&sum, sum_.data(), sizeof(sum));
  return sum;
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

std::optional<double> Optimizer::Step(double learning_rate, uint64_t step, float* parameters,
                                      const float* gradients, double gradient_scale) {
  Part all{learning_rate, step, gradient_scale, 0, elements_, parameters, gradients};
  if (spec_.clip_norm() == 0) {
    Update(all);
    return std::nullopt;
  }
  const double norm = gradient_scale * std::sqrt(SumOfSquares(gradients, elements_));
  // As torch.nn.utils.clip_grad_norm_. A norm that is not a number stays one, so that a run that
  // diverged shows.
  const double limit = spec_.clip_norm() / (norm + 1e-6);
  if (!(limit > 1)) all.gradient_scale *= limit;
  Update(all);
  return norm;
}

void Optimizer::StepPart(double learning_rate, uint64_t step, size_t begin, size_t count,
                         float* parameters, const float* gradients) {
  Update({learning_rate, step, /*gradient_scale=*/1, begin, begin + count, parameters, gradients});
}

}  // namespace muster::train
