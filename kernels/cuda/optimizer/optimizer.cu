#include "kernels/cuda/launch/block_reduce.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/optimizer/sgd.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

struct SquareRoot {
  MUSTER_HOST_DEVICE float operator()(float x) const { return sqrtf(x); }
};

struct AdamWBody {
  AdamWOptions options;
  const UpdateScalars* scalars;
  float* parameters;
  float* exp_avg;
  float* exp_avg_sq;
  const float* gradients;
  template <int kCount>
  MUSTER_HOST_DEVICE void Run(int64_t at) const {
    if (scalars->skip != 0) return;
    // Computed in double and rounded once: 1 - 0.999f has a relative error of 1e-5.
    const AdamWFunctor<float> step{
        .gradient_scale = static_cast<float>(scalars->gradient_scale),
        .decay = static_cast<float>(1 - scalars->learning_rate * options.weight_decay),
        .beta1 = static_cast<float>(options.beta1),
        .one_less_beta1 = static_cast<float>(1 - options.beta1),
        .beta2 = static_cast<float>(options.beta2),
        .one_less_beta2 = static_cast<float>(1 - options.beta2),
        .root_scale = static_cast<float>(scalars->root_scale),
        .epsilon = static_cast<float>(options.epsilon),
        .step_size = static_cast<float>(scalars->step_size),
    };
    Floats<kCount> parameter = Load<kCount>(parameters + at);
    Floats<kCount> average = Load<kCount>(exp_avg + at);
    Floats<kCount> average_square = Load<kCount>(exp_avg_sq + at);
    const Floats<kCount> gradient = Load<kCount>(gradients + at);
    for (int i = 0; i < kCount; ++i) {
      step(parameter[i], average[i], average_square[i], gradient[i], SquareRoot());
      parameter[i] = Rounded(options.round_to, parameter[i]);
      average[i] = Rounded(options.round_to, average[i]);
      average_square[i] = Rounded(options.round_to, average_square[i]);
    }
    Store<kCount>(parameters + at, parameter);
    Store<kCount>(exp_avg + at, average);
    Store<kCount>(exp_avg_sq + at, average_square);
  }
};

struct LerpBody {
  const UpdateScalars* scalars;
  const float* x;
  float* y;
  template <int kCount>
  MUSTER_HOST_DEVICE void Run(int64_t at) const {
    if (scalars->skip != 0) return;
    const float weight = scalars->average_weight;
    const Floats<kCount> target = Load<kCount>(x + at);
    Floats<kCount> values = Load<kCount>(y + at);
    for (int i = 0; i < kCount; ++i) {
      values[i] = weight == 1 ? target[i] : values[i] + weight * (target[i] - values[i]);
    }
    Store<kCount>(y + at, values);
  }
};

struct SquareSource {
  const float* x;
  MUSTER_HOST_DEVICE Sum operator()(int64_t i) const {
    const double value = x[i];
    return {value * value};
  }
};

struct SumSink {
  double* sum;
  MUSTER_HOST_DEVICE void operator()(int64_t, const Sum& all) const { *sum = all.value; }
};

}  // namespace

void SgdStep(const SgdOptions& options, const UpdateScalars* scalars, float* parameters,
             float* velocities, const float* gradients, size_t count) {
  StateWork((velocities != nullptr ? 5 : 3) *
            ArrayBytes(DataType::kFloat32, static_cast<int64_t>(count)));
  ForEachElement<kStepWidth>(static_cast<int64_t>(count),
                             Aligned({parameters, velocities, gradients}),
                             SgdBody{options, scalars, parameters, velocities, gradients});
}

void AdamWStep(const AdamWOptions& options, const UpdateScalars* scalars, float* parameters,
               float* exp_avg, float* exp_avg_sq, const float* gradients, size_t count) {
  StateWork(7 * ArrayBytes(DataType::kFloat32, static_cast<int64_t>(count)));
  ForEachElement<kStepWidth>(
      static_cast<int64_t>(count), Aligned({parameters, exp_avg, exp_avg_sq, gradients}),
      AdamWBody{options, scalars, parameters, exp_avg, exp_avg_sq, gradients});
}

void SumOfSquares(const float* x, size_t count, double* sum) {
  StateWork(ArrayBytes(DataType::kFloat32, static_cast<int64_t>(count)));
  ReduceAll<Sum>(static_cast<int64_t>(count), SquareSource{x}, SumSink{sum});
}

void Lerp(const UpdateScalars* scalars, const float* x, float* y, size_t count) {
  StateWork(3 * ArrayBytes(DataType::kFloat32, static_cast<int64_t>(count)));
  ForEachElement<kStepWidth>(static_cast<int64_t>(count), Aligned({x, y}), LerpBody{scalars, x, y});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
