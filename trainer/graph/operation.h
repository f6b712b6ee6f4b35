// What a plan runs, one after the other: a layer, or several that one kernel computes together.
#ifndef MUSTER_TRAINER_GRAPH_OPERATION_H_
#define MUSTER_TRAINER_GRAPH_OPERATION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/data_type.h"
#include "kernels/dropout.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"

namespace muster::nn {

// An activation between two operations and its gradient: NHWC, max_batch rows. The plan owns the
// memory.
struct Tensor {
  ImageShape shape;
  kernels::DataType type = kernels::DataType::kFloat32;  // of both
  bool needs_gradient = false;  // a parameter that it depends on is trained
  void* data = nullptr;
  void* gradient = nullptr;  // null where no gradient is needed

  int64_t elements() const { return shape.height * shape.width * shape.channels; }  // of one row
  size_t bytes(size_t rows) const {
    return rows * static_cast<size_t>(elements()) * kernels::SizeOf(type);
  }
};

// A residual branch under stochastic depth. Whether it is dropped is a function of (seed, step,
// node) alone, and so the same on all ranks.
struct StochasticBlock {
  kernels::BlockDraw draw;
  // In the device's memory, of the last pass in training.
  const kernels::BlockState* state = nullptr;
  // It is dropped in this step and nothing of it need be computed; false on devices whose steps are
  // recorded, which compute it and multiply it by 0.
  bool dropped = false;

  // Of what the branch adds, in the device's memory; null: 1.
  const float* factor(bool training) const { return training ? &state->factor : nullptr; }
};

// What every call of an operation gets. Only Backward reads `gradients`.
struct Call {
  uint32_t rows = 0;
  bool training = false;
  const kernels::RandomDraw* draw = nullptr;  // in the device's memory
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
    size_t saved_bytes = 0;          // from its forward to its backward
    size_t workspace_bytes = 0;      // during each call
    bool input_in_backward = false;  // the first one, and no other
    bool output_in_backward = false;
    // The output may take an input's place; of an operation without input_in_backward.
    bool output_over_input = false;
    // An input's gradient may take the input's place.
    bool gradient_over_input = false;
    // Backward changes output()->gradient: BackwardActivation or BackwardParameters.
    bool activation_in_backward = false;
  };

  // A part of the flat parameters, in elements.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
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
  // What operands of products are rounded to; all else is computed in float32.
  virtual kernels::DataType compute_type() const { return kernels::DataType::kFloat32; }
  // The operation, by name, whose layers evaluation computes here; empty without any.
  virtual std::string folds() const { return ""; }
  // What backward computes again instead of keeping it from forward, for people.
  virtual std::vector<std::string> recomputed() const { return {}; }
  virtual Memory memory(uint32_t max_rows) const = 0;
  // Floating-point operations of forward, of one row: two for each multiplication with a weight;
  // for the rest one for each element read.
  virtual int64_t forward_flops() const {
    int64_t elements = 0;
    for (const Tensor* input : inputs_) elements += input->elements();
    return elements;
  }

  // Of the model's nodes, the first and the last that it computes; others may lie between them. A
  // cast counts to a node that takes what it gives.
  void set_nodes(NodeId first, NodeId last) {
    first_node_ = first;
    last_node_ = last;
  }
  NodeId first_node() const { return first_node_; }
  NodeId last_node() const { return last_node_; }

  // The place of Memory::saved_bytes; 64-byte aligned.
  void set_saved(void* saved) { saved_ = saved; }

  Tensor* input() const { return inputs_[0]; }
  const std::vector<Tensor*>& inputs() const { return inputs_; }
  Tensor* output() const { return output_; }

  // Its parameters in the flat array. Several ranges only where an operation computes several
  // layers with parameters, which none does in training.
  void AddParameters(Range range) {
    if (range.end > range.begin) parameters_.push_back(range);
  }
  const std::vector<Range>& parameters() const { return parameters_; }
  bool has_parameters() const { return !parameters_.empty(); }

  // In evaluation the other operation, which comes later, computes this one's layers along with its
  // own: this one's Forward is not called then, and its output keeps no value.
  void set_evaluated_by(const Operation* operation) { evaluated_by_ = operation; }
  const Operation* evaluated_by() const { return evaluated_by_; }

  // A branch that it is a part of; several where branches hold branches, the innermost first.
  void AddBlock(const StochasticBlock* block) { blocks_.push_back(block); }
  const std::vector<const StochasticBlock*>& blocks() const { return blocks_; }
  // Not 0, in the device's memory, where none of its branches is dropped; null: it is in none.
  const float* active() const {
    return blocks_.empty() ? nullptr : &blocks_.front()->state->active;
  }
  // Left out of this step, forward and backward.
  bool skipped() const {
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [](const StochasticBlock* block) { return block->dropped; });
  }

  virtual void Forward(const Call& call) = 0;

  // Whether the output can be had a second time, in one cheap pass over what is kept for backward,
  // while backward runs: Recompute writes to output()->data what Forward did.
  virtual bool Recomputes() const { return false; }
  virtual void Recompute(const Call& call) {}

  // Backward, in this order. First output()->gradient goes, in its place, through what happens
  // element by element at the end of the operation.
  virtual void BackwardActivation(const Call& call) {}
  // Then the parameters' gradients, written, not added to.
  virtual void BackwardParameters(const Call& call) {}
  // Whether BackwardData reads the parameters' gradients. They are not handed to the caller, who
  // may reduce them in place, before it.
  virtual bool reads_parameter_gradients() const { return false; }
  // Then the gradient of each input that needs one, to dx like the input; written, not added to.
  virtual void BackwardData(const Call& call, size_t input, void* dx) {}
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
  std::vector<Range> parameters_;
  const Operation* evaluated_by_ = nullptr;
  void* saved_ = nullptr;
  NodeId first_node_ = 0;
  NodeId last_node_ = 0;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_OPERATION_H_
