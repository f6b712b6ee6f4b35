// Forward and backward passes of a model over bound arrays: what objectives and training steps
// call.
//
// All arrays are in the memory of device(); only results of a loss come to the process's.
#ifndef MUSTER_TRAINER_GRAPH_EXECUTION_H_
#define MUSTER_TRAINER_GRAPH_EXECUTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/loss_result.h"

namespace muster::nn {

// Sums over all ranks for synchronised batch norm, of arrays in the plan's device's memory. Every
// rank calls alike and in the same order, also without any row; what the device is given to compute
// from then on finds the sums. The implementation keeps errors: after one the values are worth
// nothing, and the plan's caller asks the implementation before it uses the step.
class StatisticsReducer {
 public:
  virtual ~StatisticsReducer() = default;
  virtual void Sum(double* values, size_t count) = 0;
  virtual void Sum(float* values, size_t count) = 0;
};

// Seeds whatever is random in a step; equal on all ranks and in all worlds for the same sample.
struct StepContext {
  uint64_t seed = 0;
  uint64_t step = 0;
  // Index in the global batch of the call's first row: dropout is a function of (seed, step, layer,
  // global row).
  uint64_t first_row = 0;
};

using kernels::LossResult;

struct LossOptions {
  double label_smoothing = 0;
  double scale = 1;                    // of the gradient: 1 / global batch
  const double* loss_scale = nullptr;  // another one, in the device's memory; null: 1
};

// Runs passes of a whole model or of one part: on one device (Plan), or as replicas on several
// devices of this process (trainer/strategy/dp). Not thread-safe.
class Execution {
 public:
  virtual ~Execution() = default;

  // Where the arrays below are.
  virtual kernels::Device& device() const = 0;
  // Whether passes can be captured as a CUDA graph: they only call the device, alike in every step.
  virtual bool supports_graph_capture() const = 0;

  // Base addresses, 64-byte aligned, which the execution does not own; anew for each generation.
  // gradients may be null when not training. Required before any of the calls below.
  virtual void Bind(float* parameters, float* gradients, float* buffers) = 0;

  // For a model compiled with synchronize_batch_norm; null, as at first: each rank's own
  // statistics. The reducer outlives the passes.
  virtual void set_statistics_reducer(StatisticsReducer* reducer) = 0;

  // Where the caller writes a batch: max_batch * H * W * C floats (NHWC), and max_batch labels,
  // each from 0 to classes - 1. A part of a model that begins later has no input: null.
  virtual float* input() = 0;
  virtual int32_t* labels() = 0;

  // What passes in training from here on draw their random numbers from. Where passes are captured
  // as graphs, they are the same in every step: this alone is not, and is called between them.
  virtual void SetStep(const StepContext& context) = 0;
  // rows <= max_batch; zero rows are legal everywhere and give zero gradients. A number of rows
  // that first appears costs the building of its kernels once; from then on nothing is allocated.
  // Training keeps running statistics of batch norm, of the rows present.
  // Backward has the rows of the last Forward (of the same slot of a Plan).
  virtual void Forward(uint32_t rows, bool training) = 0;
  void Forward(uint32_t rows, bool training, const StepContext& context) {
    if (training) SetStep(context);
    Forward(rows, training);
  }
  // Logits of the last Forward, rows * classes; empty where a part of a model ends earlier.
  virtual absl::Span<const float> logits(uint32_t rows) const = 0;
  // Cross-entropy, after Forward, to *result in the device's memory: of the rows of this call;
  // correct are those whose largest logit is their label. Not for a part of a model that ends
  // before its logits.
  virtual void QueueLoss(uint32_t rows, const LossOptions& options, LossResult* result) = 0;
  // What Backward starts from, rows * classes: the gradient of the logits. QueueLoss writes it;
  // another objective writes it itself, between Forward and Backward. Null without training, and
  // where there are no logits.
  virtual float* output_gradient() = 0;
  // After QueueLoss, or what is in its place. Writes (not adds to) every gradient. ready(offset):
  // gradients from element `offset` to the end of the flat array are final; called with falling
  // offsets, the last time with 0. Follows one Forward in training.
  virtual void Backward(uint32_t rows, const std::function<void(size_t offset)>& ready) = 0;

  // Time spent in passes and in the loss since it was compiled, a statistics reducer's calls
  // included.
  virtual absl::Duration kernel_time() const = 0;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_EXECUTION_H_
