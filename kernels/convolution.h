// Two-dimensional convolution, forward and backward, and the matrix product of a linear layer.
//
// Activations are NHWC with the samples of the batch first, in the types of the options. Weights
// and their gradients are in a layout that the implementation selects at creation for its largest
// batch; Import and Export convert from and to PyTorch's canonical order in float32. Padding of the
// layout is zero after Import, and backward writes zeros to it. Biases are float32.
//
// Both operands of every product are rounded to the compute type; products are always accumulated
// in float32.
#ifndef MUSTER_KERNELS_CONVOLUTION_H_
#define MUSTER_KERNELS_CONVOLUTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/data_type.h"
#include "kernels/epilogue.h"

namespace muster::kernels {

// A linear layer is a convolution with height = width = kernel = 1, no padding and one group.
struct ConvolutionShape {
  int64_t height = 1;  // height of the input
  int64_t width = 1;
  int64_t in_channels = 1;
  int64_t out_channels = 1;
  int64_t kernel = 1;  // square
  int64_t stride = 1;
  int64_t padding = 0;  // zeros on each side
  // Output channels of group g depend only on input channels of group g; in_channels groups make a
  // depthwise convolution. Must divide both numbers of channels.
  int64_t groups = 1;

  int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
  // Elements of one sample.
  int64_t input_elements() const { return height * width * in_channels; }
  int64_t output_elements() const { return out_height() * out_width() * out_channels; }
  int64_t fan_in() const { return in_channels / groups * kernel * kernel; }
  int64_t weights() const { return out_channels * fan_in(); }
  bool depthwise() const { return groups > 1 && groups == in_channels && groups == out_channels; }
  bool valid() const {
    return height > 0 && width > 0 && in_channels > 0 && out_channels > 0 && kernel > 0 &&
           stride > 0 && padding >= 0 && height + 2 * padding >= kernel &&
           width + 2 * padding >= kernel && groups > 0 && in_channels % groups == 0 &&
           out_channels % groups == 0;
  }
  // The same convolution of only the pixels that a kernel of 1 without padding reads.
  ConvolutionShape Compact() const {
    ConvolutionShape compact = *this;
    compact.height = out_height();
    compact.width = out_width();
    compact.stride = 1;
    return compact;
  }
};

struct ConvolutionOptions {
  int64_t max_samples = 1;
  bool bias = true;           // BackwardWeights writes dbias
  bool training = true;       // backward will be called
  bool data_gradient = true;  // BackwardData will be called
  // BackwardData writes dx only at the pixels that Forward reads, the input of shape.Compact().
  // Requires a kernel of 1 without padding and one group; not for CPUs.
  bool compact_data_gradient = false;
  int threads = 1;
  DataType x_type = DataType::kFloat32;  // type of x and dx
  DataType y_type = DataType::kFloat32;  // type of y, dy and an epilogue's addend
  DataType compute_type = DataType::kFloat32;

  bool valid() const {
    return max_samples > 0 && threads > 0 && IsKernelType(x_type) && IsKernelType(y_type) &&
           IsKernelType(compute_type);
  }
};

// Not thread-safe. Only the first call with a given number of samples allocates memory.
class Convolution {
 public:
  virtual ~Convolution() = default;

  // Elements of the weights' layout, including padding. The bias has out_channels elements in
  // canonical order.
  virtual int64_t weights_elements() const = 0;
  // Name of the layout: layouts with equal names are byte-compatible.
  virtual std::string weights_layout() const = 0;
  // Type of the weights that Forward and BackwardData read, and of the gradient that
  // BackwardWeights writes: float32, or the compute type for an implementation that would otherwise
  // cast them in each call.
  virtual DataType weights_type() const { return DataType::kFloat32; }
  virtual DataType dweights_type() const { return DataType::kFloat32; }
  // Whether Forward and BackwardWeights each cast x to the compute type in a pass of its own, so
  // that it is better cast once for both.
  virtual bool casts_x() const { return false; }
  // Human-readable description of the implementation selected for each direction.
  virtual std::string description() const = 0;
  // canonical: OIHW, shape.weights() elements; I is in_channels / groups.
  virtual void ImportWeights(const float* canonical, float* weights) const = 0;
  virtual void ExportWeights(const float* weights, float* canonical) const = 0;

  // Workspace bytes needed by each call below; 64-byte aligned, with unspecified content.
  virtual size_t workspace_bytes() const = 0;

  // 0 <= samples <= max_samples everywhere. All arrays are 64-byte aligned, except weights and
  // dweights of 16-bit types, which are 32-byte aligned.
  // x [samples, height, width, in_channels] -> y [samples, out_height, out_width, out_channels]
  virtual void Forward(int64_t samples, const void* x, const void* weights,
                       const Epilogue& epilogue, void* y, void* workspace) = 0;
  // dy, the gradient of the sums before the epilogue, like y -> dx like x
  virtual void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                            void* workspace) = 0;
  // x, dy -> dweights like weights, dbias [out_channels], the sums of dy rounded like an operand;
  // dbias is null without a bias. Both are overwritten; zero if samples is 0.
  virtual void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights,
                               float* dbias, void* workspace) = 0;
};

namespace reference {
// Reference implementation: plain loops in canonical order, accumulated in double.
std::unique_ptr<Convolution> MakeConvolution(const ConvolutionShape& shape,
                                             const ConvolutionOptions& options);
}  // namespace reference

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CONVOLUTION_H_
