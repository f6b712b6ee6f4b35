// The operations that a plan runs in order: each computes one layer or several fused ones.
#ifndef MUSTER_TRAINER_GRAPH_OPERATION_H_
#define MUSTER_TRAINER_GRAPH_OPERATION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/batch_norm.h"
#include "kernels/data_type.h"
#include "kernels/dropout.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"

namespace muster::nn {

// An activation between two operations and its gradient: NHWC, max_batch samples. The plan owns the
// memory.
struct Tensor {
  ImageShape shape;
  kernels::DataType type = kernels::DataType::kFloat32;  // type of data and gradient
  bool needs_gradient = false;  // a parameter that it depends on is trained
  void* data = nullptr;
  // During forward of a training pass: the producer, a batch norm, has not written data, because
  // its consumer computes the values from these. No data otherwise. See also Operation::Shortcut.
  kernels::BatchNormAddend normalized;
  void* gradient = nullptr;  // null where no gradient is needed
  // During backward: a contribution that its producer, which takes it, has yet to add to the
  // gradient. See Operation::TakesGradientAddend.
  const void* gradient_addend = nullptr;
  int64_t gradient_addend_stride = 1;  // as in kernels::BatchNormGradient

  // Elements of one sample.
  int64_t elements() const { return shape.height * shape.width * shape.channels; }
  size_t bytes(size_t samples) const {
    return samples * static_cast<size_t>(elements()) * kernels::SizeOf(type);
  }
};

// A residual branch under stochastic depth. Whether it is dropped is a function of (seed, step,
// node) only, and therefore the same on all ranks.
struct StochasticBlock {
  kernels::BlockDraw draw;
  // State of the last training pass, in device memory.
  const kernels::BlockState* state = nullptr;
  // Dropped in this step, so that its operations are skipped. Always false on devices that capture
  // steps: they compute the branch and multiply it by 0.
  bool dropped = false;

  // Factor of the branch, in device memory; null: 1.
  const float* factor(bool training) const { return training ? &state->factor : nullptr; }
};

// Arguments common to all calls of an operation. Only Backward reads `gradients`.
struct Call {
  uint32_t samples = 0;
  bool training = false;
  const kernels::RandomDraw* draw = nullptr;  // in device memory
  const float* parameters = nullptr;
  float* gradients = nullptr;
  // Like parameters and gradients, in the plan's compute type: copies of the parameters, and
  // gradients of those in Operation::cast_gradients, which the plan casts to `gradients`. Null if
  // no operation uses them.
  const void* cast_parameters = nullptr;
  void* cast_gradients = nullptr;
  float* buffers = nullptr;
  void* workspace = nullptr;
  StatisticsReducer* reducer = nullptr;  // for synchronised batch norm; null: local statistics
};

// Not thread-safe. Inputs and output must outlive the operation.
class Operation {
 public:
  // Memory requirements of an operation, and which buffers it may overwrite.
  struct Memory {
    size_t saved_bytes = 0;          // kept from its forward to its backward
    size_t workspace_bytes = 0;      // used during each call
    bool input_in_backward = false;  // backward reads the first input (never others)
    bool output_in_backward = false;
    // The output may overwrite an input; requires !input_in_backward.
    bool output_over_input = false;
    // An input's gradient may overwrite the input.
    bool gradient_over_input = false;
    // Backward changes output()->gradient: BackwardActivation or BackwardParameters.
    bool activation_in_backward = false;
    // The input's gradient is written by the backward of the output's only consumer, before this
    // operation's.
    bool backward_by_consumer = false;
  };

  // A range of the flat parameters, in elements.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };

  Operation(std::string name, std::vector<Tensor*> inputs, Tensor* output)
      : name_(std::move(name)), inputs_(std::move(inputs)), output_(output) {}
  virtual ~Operation() = default;

  // Name of its nodes: "layer1.0.bn1" or "0..2".
  const std::string& name() const { return name_; }
  // Its layers, "conv2d + relu".
  virtual std::string kind() const = 0;
  // Human-readable description of the selected kernels.
  virtual std::string description() const = 0;
  // Type to which operands of products are rounded; everything else is computed in float32.
  virtual kernels::DataType compute_type() const { return kernels::DataType::kFloat32; }
  // Name of the operation whose layers evaluation computes here; empty if none.
  virtual std::string folds() const { return ""; }
  // Human-readable list of what backward recomputes instead of keeping it from forward.
  virtual std::vector<std::string> recomputed() const { return {}; }
  virtual Memory memory(uint32_t max_samples) const = 0;
  // Floating-point operations of forward for one sample: two per multiplication with a weight;
  // otherwise one per element read.
  virtual int64_t forward_flops() const {
    int64_t elements = 0;
    for (const Tensor* input : inputs_) elements += input->elements();
    return elements;
  }

  // First and last of the model's nodes that it computes; other nodes may lie between them. A cast
  // is attributed to a node that uses its output.
  void set_nodes(NodeId first, NodeId last) {
    first_node_ = first;
    last_node_ = last;
  }
  NodeId first_node() const { return first_node_; }
  NodeId last_node() const { return last_node_; }

  // Sets the address of Memory::saved_bytes; 64-byte aligned.
  void set_saved(void* saved) { saved_ = saved; }

  Tensor* input() const { return inputs_[0]; }
  const std::vector<Tensor*>& inputs() const { return inputs_; }
  Tensor* output() const { return output_; }

  // Adds a range of its parameters in the flat array. An operation has several ranges only if it
  // computes several layers with parameters, which happens only in evaluation.
  void AddParameters(Range range) {
    if (range.end > range.begin) parameters_.push_back(range);
  }
  const std::vector<Range>& parameters() const { return parameters_; }
  // Whether it reads Call::cast_parameters.
  virtual bool reads_cast_parameters() const { return false; }
  // The range whose gradients BackwardParameters writes to Call::cast_gradients; empty if none.
  virtual Range cast_gradients() const { return {}; }
  bool has_parameters() const { return !parameters_.empty(); }

  // In evaluation `operation`, which comes later, also computes this operation's layers: Forward is
  // not called, and the output holds no value.
  void set_evaluated_by(const Operation* operation) { evaluated_by_ = operation; }
  const Operation* evaluated_by() const { return evaluated_by_; }

  // Adds a branch that contains the operation; for nested branches, the innermost first.
  void AddBlock(const StochasticBlock* block) { blocks_.push_back(block); }
  const std::vector<const StochasticBlock*>& blocks() const { return blocks_; }
  // Device address of a value that is nonzero if none of its branches is dropped; null if it is in
  // no branch.
  const float* active() const {
    return blocks_.empty() ? nullptr : &blocks_.front()->state->active;
  }
  // Whether this step skips the operation, forward and backward.
  bool skipped() const {
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [](const StochasticBlock* block) { return block->dropped; });
  }

  virtual void Forward(const Call& call) = 0;

  // Whether the output can be computed again during backward, in one cheap pass over values that
  // are kept: Recompute then writes the same values to output()->data as Forward.
  virtual bool Recomputes() const { return false; }
  virtual void Recompute(const Call& call) {}

  // Backward consists of these passes, in this order. The first transforms output()->gradient in
  // place by the elementwise functions at the operation's end.
  virtual void BackwardActivation(const Call& call) {}
  // Whether BackwardParameters adds output()->gradient_addend, if there is one, to
  // output()->gradient.
  virtual bool TakesGradientAddend() const { return false; }
  // Whether such a contribution may have a stride other than 1.
  virtual bool TakesStridedGradientAddend() const { return false; }
  // Writes (does not accumulate) the gradients of the parameters.
  virtual void BackwardParameters(const Call& call) {}
  // Whether BackwardData reads the gradients of the parameters. If so, they are reported as ready
  // only after it, because the caller may reduce them in place.
  virtual bool reads_parameter_gradients() const { return false; }
  // Writes (does not accumulate) the gradient of one input that needs it to dx, shaped like it.
  virtual void BackwardData(const Call& call, size_t input, void* dx) {}
  // Distance between the pixels, along both axes, that BackwardData writes to dx, which has no
  // others. The gradient is zero at all others. Other than 1 only if one other operation, whose
  // BackwardData writes all pixels, uses the input, and its producer TakesStridedGradientAddend.
  virtual int64_t GradientStride(size_t input) const { return 1; }
  // For a batch norm whose values a sum computes: what the sum's backward needs to compute that of
  // both. The operation's own backward then does nothing.
  virtual kernels::BatchNormShortcut Shortcut(const Call& call) const { return {}; }
  // Whether the input's gradient equals output()->gradient after the passes above: BackwardData is
  // then not called for it.
  virtual bool PassesGradient(size_t input) const { return false; }

 protected:
  void* saved() const { return saved_; }
  // Number of elements of the output in this call.
  size_t OutputCount(const Call& call) const {
    return call.samples * static_cast<size_t>(output_->elements());
  }

 private:
  const std::string name_;
  const std::vector<Tensor*> inputs_;
  Tensor* const output_;
  std::vector<const StochasticBlock*> blocks_;
  std::vector<Range> parameters_;
  const Operation* evaluated_by_ = nullptr;
  void* saved_ = nullptr;
  NodeId first_node_ = 0;
  NodeId last_node_ = 0;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_OPERATION_H_
