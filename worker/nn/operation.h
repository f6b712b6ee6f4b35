// What a plan runs, one after the other: a layer, or several that one kernel computes together.
#ifndef MUSTER_WORKER_NN_OPERATION_H_
#define MUSTER_WORKER_NN_OPERATION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/nn/graph.h"
#include "worker/nn/plan.h"

namespace muster::nn {

// An activation between two operations and its gradient: NHWC, float32, max_batch rows. The plan
// owns the memory.
struct Tensor {
  ImageShape shape;
  bool needs_gradient = false;  // a parameter that it depends on is trained
  float* data = nullptr;
  float* gradient = nullptr;  // null where no gradient is needed

  int64_t elements() const { return shape.height * shape.width * shape.channels; }  // of one row
};

// A residual branch under stochastic depth. Whether it is dropped is a function of (seed, step,
// node) alone, and so the same on all ranks.
struct StochasticBlock {
  uint32_t node = 0;
  double probability = 0;
  bool dropped = false;  // in the last Forward

  double scale(bool training) const { return training ? 1.0 / (1.0 - probability) : 1.0; }
};

// What every call of an operation gets. Only Backward reads `gradients`.
struct Call {
  uint32_t rows = 0;
  bool training = false;
  StepContext step;
  const float* parameters = nullptr;
  float* gradients = nullptr;
  float* buffers = nullptr;
  void* workspace = nullptr;
  StatisticsReducer* reducer = nullptr;  // of synchronised batch norm; null: local statistics
};

// Not thread-safe. Inputs and output outlive the operation.
class Operation {
 public:
  // What an operation asks of the arena, and what it does to the places of others.
  struct Memory {
    size_t saved_bytes = 0;      // from its forward to its backward
    size_t workspace_bytes = 0;  // during each call
    bool inputs_in_backward = false;
    bool output_in_backward = false;
    // The output may take an input's place; of an operation without inputs_in_backward.
    bool output_over_input = false;
    // The (only) input's gradient may take the input's place.
    bool gradient_over_input = false;
    bool activation_in_backward = false;  // BackwardActivation does something
  };

  Operation(std::string name, std::vector<Tensor*> inputs, Tensor* output)
      : name_(std::move(name)), inputs_(std::move(inputs)), output_(output) {}
  virtual ~Operation() = default;

  // The nodes that it computes, "layer1.0.bn1" or "0..2".
  const std::string& name() const { return name_; }
  // Its layers, "conv2d + relu".
  virtual std::string kind() const = 0;
  // The kernels chosen, for people.
  virtual std::string description() const = 0;
  virtual Memory memory(uint32_t max_rows) const = 0;
  // Floating-point operations of forward, of one row: two for each multiplication with a weight;
  // for the rest one for each element read.
  virtual int64_t forward_flops() const {
    int64_t elements = 0;
    for (const Tensor* input : inputs_) elements += input->elements();
    return elements;
  }

  // The place of Memory::saved_bytes; 64-byte aligned.
  void set_saved(void* saved) { saved_ = saved; }

  Tensor* input() const { return inputs_[0]; }
  const std::vector<Tensor*>& inputs() const { return inputs_; }
  Tensor* output() const { return output_; }

  // Its parameters' range in the flat array, in elements; empty without any.
  void set_parameters(size_t begin, size_t end) {
    parameters_begin_ = begin;
    parameters_end_ = end;
  }
  size_t parameters_begin() const { return parameters_begin_; }
  size_t parameters_end() const { return parameters_end_; }
  bool has_parameters() const { return parameters_end_ > parameters_begin_; }

  // A branch that it is a part of; several where branches hold branches.
  void AddBlock(const StochasticBlock* block) { blocks_.push_back(block); }
  // Left out of this step, forward and backward.
  bool skipped() const {
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [](const StochasticBlock* block) { return block->dropped; });
  }

  virtual void Forward(const Call& call) = 0;

  // Backward, in this order. First output()->gradient goes, in its place, through what happens
  // element by element at the end of the operation.
  virtual void BackwardActivation(const Call& call) {}
  // Then the parameters' gradients, written, not added to.
  virtual void BackwardParameters(const Call& call) {}
  // Then the gradient of each input that needs one, to dx like the input; written, not added to.
  virtual void BackwardData(const Call& call, size_t input, float* dx) {}
  // The input's gradient is output()->gradient as it stands then: BackwardData is not called for
  // it.
  virtual bool PassesGradient(size_t input) const { return false; }

 protected:
  void* saved() const { return saved_; }
  // Elements of the output in this call.
  size_t OutputCount(const Call& call) const {
    return call.rows * static_cast<size_t>(output_->elements());
  }

 private:
  const std::string name_;
  const std::vector<Tensor*> inputs_;
  Tensor* const output_;
  std::vector<const StochasticBlock*> blocks_;
  size_t parameters_begin_ = 0;
  size_t parameters_end_ = 0;
  void* saved_ = nullptr;
};

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_OPERATION_H_
