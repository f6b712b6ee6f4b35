// Interface of a model's forward and backward passes over bound arrays, which objectives and
// training steps call.
//
// All arrays are in the memory of device(); only loss results are copied to host memory.
#ifndef MUSTER_TRAINER_GRAPH_EXECUTION_H_
#define MUSTER_TRAINER_GRAPH_EXECUTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/dropout.h"
#include "kernels/loss_result.h"

namespace muster::nn {

// Sums arrays in the plan's device memory over all ranks, for synchronised batch norm. Every rank
// makes the same calls in the same order, even with zero samples; work queued on the device
// afterwards reads the sums. The implementation stores errors: after an error the values are
// undefined, and the plan's caller must check the implementation's status before it uses the step.
class StatisticsReducer {
 public:
  virtual ~StatisticsReducer() = default;
  virtual void Sum(double* values, size_t count) = 0;
  virtual void Sum(float* values, size_t count) = 0;
};

// Seed of everything random in a step; equal on all ranks and for any world size.
struct StepContext {
  uint64_t seed = 0;
  uint64_t step = 0;
  // Index of the call's first sample in the global batch: dropout is a function of (seed, step,
  // layer, global sample index).
  uint64_t first_sample = 0;
};

// Random state of a pass with this context.
inline kernels::RandomDraw DrawOf(const StepContext& context) {
  return {.key = kernels::DerivePhiloxKey(context.seed, context.step),
          .first_sample = context.first_sample};
}

using kernels::LossResult;

struct LossOptions {
  double label_smoothing = 0;
  double scale = 1;                    // factor of the gradient: 1 / global batch size
  const double* loss_scale = nullptr;  // additional factor, in device memory; null: 1
};

// Runs passes of a whole model or of one stage: on one device (Plan), or as replicas on several
// devices of this process (trainer/strategy/dp). Not thread-safe.
class Execution {
 public:
  virtual ~Execution() = default;

  // Device whose memory holds the arrays below.
  virtual kernels::Device& device() const = 0;
  // Whether passes can be captured as a CUDA graph: they only queue device work, identical in every
  // step.
  virtual bool supports_graph_capture() const = 0;

  // Sets the base addresses of the arrays, 64-byte aligned and not owned. Called again in each
  // generation. `gradients` may be null without training. Required before all calls below.
  virtual void Bind(float* parameters, float* gradients, float* buffers) = 0;

  // Reducer for a model compiled with synchronize_batch_norm. Null (the default): each rank uses
  // its own statistics. The reducer must outlive the passes.
  virtual void set_statistics_reducer(StatisticsReducer* reducer) = 0;

  // Where the caller writes a batch: max_batch * H * W * C floats (NHWC) and max_batch labels, each
  // in [0, classes). input() is null for a stage that does not begin the model.
  virtual float* input() = 0;
  virtual int32_t* labels() = 0;

  // Sets the seed of the random numbers of the training passes that follow. Where passes are
  // captured as CUDA graphs, all steps replay the same work; SetStep is called between replays.
  virtual void SetStep(const StepContext& context) = 0;
  // samples <= max_batch; 0 is valid everywhere and gives zero gradients. The first call
  // with a new number of samples builds its kernels; later calls allocate nothing. A training pass
  // updates batch norm's running statistics from the samples present. Backward uses the samples of
  // the last Forward (of the same slot of a Plan).
  virtual void Forward(uint32_t samples, bool training) = 0;
  void Forward(uint32_t samples, bool training, const StepContext& context) {
    if (training) SetStep(context);
    Forward(samples, training);
  }
  // Logits of the last Forward, samples * classes; empty for a stage that does not end the model.
  virtual absl::Span<const float> logits(uint32_t samples) const = 0;
  // Queues the cross-entropy of this call's samples after Forward and writes it to *result in
  // device memory; a sample is correct if its largest logit is at its label. Not valid for a stage
  // that does not end the model.
  virtual void QueueLoss(uint32_t samples, const LossOptions& options, LossResult* result) = 0;
  // Gradient of the logits, samples * classes, from which Backward starts. QueueLoss writes it;
  // other objectives write it themselves between Forward and Backward. Null without training or
  // logits.
  virtual float* output_gradient() = 0;
  // Called after QueueLoss or its replacement, once per training Forward. Overwrites every gradient
  // (does not accumulate). ready(offset) reports that the gradients from element `offset` to the
  // end of the flat array are final; it is called with descending offsets, the last one 0.
  virtual void Backward(uint32_t samples, const std::function<void(size_t offset)>& ready) = 0;

  // Time spent in passes and in the loss since compilation, including calls of the statistics
  // reducer.
  virtual absl::Duration kernel_time() const = 0;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_EXECUTION_H_
