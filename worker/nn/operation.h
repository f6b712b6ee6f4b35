// What a plan runs, one after the other: a layer, or several that one kernel computes together.
#ifndef MUSTER_WORKER_NN_OPERATION_H_
#define MUSTER_WORKER_NN_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/convolution.h"
#include "kernels/kernel_table.h"
#include "worker/nn/graph.h"
#include "worker/nn/plan.h"

namespace muster::nn {

// An activation between two operations and its gradient: NHWC, float32, max_batch rows. The plan
// owns the memory.
struct Tensor {
  ImageShape shape;
  float* data = nullptr;
  float* gradient = nullptr;  // null where no gradient is needed

  int64_t elements() const { return shape.height * shape.width * shape.channels; }  // of one row
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
};

// Not thread-safe. input and output outlive the operation.
class Operation {
 public:
  // What an operation asks of the arena.
  struct Memory {
    size_t saved_bytes = 0;      // from its forward to its backward
    size_t workspace_bytes = 0;  // during each call
    bool input_in_backward = false;
    bool output_in_backward = false;
    // The input's gradient may take the input's place.
    bool gradient_over_input = false;
  };

  Operation(std::string name, Tensor* input, Tensor* output)
      : name_(std::move(name)), input_(input), output_(output) {}
  virtual ~Operation() = default;

  const std::string& name() const { return name_; }
  // The kernels chosen, for people.
  virtual std::string description() const = 0;
  virtual Memory memory(uint32_t max_rows) const = 0;
  // The place of Memory::saved_bytes; 64-byte aligned.
  void set_saved(void* saved) { saved_ = saved; }

  Tensor* input() const { return input_; }
  Tensor* output() const { return output_; }

  // Where its parameters start in the flat array; -1 without any.
  virtual int64_t parameter_offset() const { return -1; }

  virtual void Forward(const Call& call) = 0;
  // Both read output().gradient, which they may overwrite. First the parameters' gradients,
  // written, not added to.
  virtual void BackwardParameters(const Call& call) {}
  // Then input().gradient; not called where that is null.
  virtual void BackwardData(const Call& call) = 0;

 protected:
  void* saved() const { return saved_; }

 private:
  const std::string name_;
  Tensor* const input_;
  Tensor* const output_;
  void* saved_ = nullptr;
};

// A convolution or linear layer, with the ReLU after it where `relu` (and the convolution itself)
// say so.
struct ConvolutionParts {
  std::unique_ptr<kernels::Convolution> convolution;
  bool relu = false;
  size_t weight_offset = 0;
  size_t bias_offset = 0;
};
std::unique_ptr<Operation> MakeConvolutionOperation(std::string name, Tensor* input, Tensor* output,
                                                    ConvolutionParts parts,
                                                    const kernels::KernelTable& kernels);

// Batch norm with what follows it.
struct BatchNormParts {
  BatchNorm2d layer;
  bool relu = false;
  bool pool = false;
  size_t weight_offset = 0;
  size_t bias_offset = 0;
  size_t running_mean_offset = 0;  // in the buffers
  size_t running_variance_offset = 0;
};
std::unique_ptr<Operation> MakeBatchNormOperation(std::string name, Tensor* input, Tensor* output,
                                                  const BatchNormParts& parts,
                                                  const kernels::KernelTable& kernels);

std::unique_ptr<Operation> MakeMaxPoolOperation(std::string name, Tensor* input, Tensor* output,
                                                bool relu, const kernels::KernelTable& kernels);

std::unique_ptr<Operation> MakeReluOperation(std::string name, Tensor* input, Tensor* output,
                                             const kernels::KernelTable& kernels);

// `index` tells the dropouts of one model apart.
std::unique_ptr<Operation> MakeDropoutOperation(std::string name, Tensor* input, Tensor* output,
                                                double probability, uint32_t index,
                                                const kernels::KernelTable& kernels);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_OPERATION_H_
