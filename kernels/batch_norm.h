// Batch normalisation (Ioffe & Szegedy 2015) over the channels of NHWC activations, fused with the
// sum of a residual block, the activation and the max pooling that may follow it.
//
// Activations and their gradients (void*) have the shape's type, per-channel arrays are float32;
// all are 64-byte aligned unless stated otherwise. Statistics cover only the samples present in the
// batch.
#ifndef MUSTER_KERNELS_BATCH_NORM_H_
#define MUSTER_KERNELS_BATCH_NORM_H_

#include <cstddef>
#include <cstdint>

#include "kernels/activation.h"
#include "kernels/data_type.h"
#include "kernels/pooling.h"

namespace muster::kernels {

struct BatchNormShape {
  int64_t samples = 0;
  int64_t height = 1;
  int64_t width = 1;
  int64_t channels = 1;
  Activation activation = Activation::kNone;  // applied to the normalised values plus addend
  // Followed by max pooling with these windows, as in PoolShape. Needs kRelu. Windows other than
  // 2x2 with stride 2 also need kernels whose BatchNormPoolBytes is not 0.
  bool pool = false;
  DataType type = DataType::kFloat32;  // type of x, addend, y, dy, dz and dx
  int64_t pool_kernel = 2;
  int64_t pool_stride = 2;
  int64_t pool_padding = 0;

  bool pools_2x2() const {
    return pool && pool_kernel == 2 && pool_stride == 2 && pool_padding == 0;
  }
  int64_t pixels() const { return samples * height * width; }
  int64_t out_height() const { return Pooled(height); }
  int64_t out_width() const { return Pooled(width); }
  int64_t out_pixels() const { return samples * out_height() * out_width(); }

 private:
  int64_t Pooled(int64_t size) const {
    if (!pool) return size;
    if (pools_2x2()) return size / 2;
    return (size + 2 * pool_padding - pool_kernel) / pool_stride + 1;
  }
};

// x [pixels, channels] -> mean [channels], variance [channels] (biased). pixels > 0.
using BatchNormStatistics = void(const BatchNormShape& shape, const void* x, float* mean,
                                 float* variance);

// Converts statistics to the scale and shift of Apply. All arrays [channels].
struct BatchNormScaling {
  int64_t channels = 1;
  double epsilon = 1e-5;
};

//   inverse_deviation = 1 / sqrt(variance + epsilon); may be the same array as variance
//   scale = *factor * gamma * inverse_deviation
//   shift = *factor * beta + (bias - mean) * scale
// factor multiplies all normalised values; null: 1. bias is a bias that x does not include; null:
// 0.
using BatchNormScale = void(const BatchNormScaling& scaling, const float* factor, const float* mean,
                            const float* variance, const float* gamma, const float* beta,
                            const float* bias, float* inverse_deviation, float* scale,
                            float* shift);

// For statistics over several devices: converts mean and variance [channels] of `pixels` to sums,
// float64 [2 * channels + 1], of the values, their squares and the pixels, which are then summed
// over the devices. Double precision avoids cancellation if a mean is far from zero. mean and
// variance are not read if pixels is 0.
using BatchNormToSums = void(int64_t channels, double pixels, const float* mean,
                             const float* variance, double* sums);
// Converts the sums back to the statistics of all their pixels; writes nothing if there are none.
using BatchNormFromSums = void(int64_t channels, const double* sums, float* mean, float* variance);

struct BatchNormMomentum {
  int64_t channels = 1;
  double pixels = 1;  // number of pixels that the statistics cover
  double momentum = 0.1;
  // Device address that replaces `pixels` if the statistics cover several devices. If it contains
  // 0, nothing is updated.
  const double* shared_pixels = nullptr;
};

// Updates the running statistics as in PyTorch: running += momentum * (batch - running), with the
// unbiased variance. All arrays [channels]. Does nothing if *active is 0; a null `active` means
// nonzero.
using BatchNormRunning = void(const BatchNormMomentum& momentum, const float* active,
                              const float* mean, const float* variance, float* running_mean,
                              float* running_variance);

// The passes before Apply in training, over the samples of one device.
struct BatchNormTraining {
  double epsilon = 1e-5;
  double momentum = 0.1;          // weight of the newest batch in the running statistics
  const float* factor = nullptr;  // see BatchNormScale
  const float* active = nullptr;  // see BatchNormRunning
  // All arrays [channels].
  const float* gamma = nullptr;
  const float* beta = nullptr;
  float* mean = nullptr;
  float* inverse_deviation = nullptr;
  float* scale = nullptr;
  float* shift = nullptr;
  float* running_mean = nullptr;
  float* running_variance = nullptr;
};

// BatchNormStatistics, BatchNormRunning and BatchNormScale without a bias in one call, with the
// same results. pixels > 0.
using BatchNormPrepare = void(const BatchNormShape& shape, const void* x,
                              const BatchNormTraining& training);

// What Apply adds, shaped like x: data * scale + shift with scale, shift [channels], which are the
// values of another batch norm; without a scale, data. Null data: 0.
struct BatchNormAddend {
  const void* data = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
};

// x -> y [out_pixels, channels] = pool(activation(x * scale + shift + addend)), with scale, shift
// [channels]. There is no addend with pool. Without pool y may be x or the addend's data. choice
// may be null. With 2x2 pooling, uint8 [out_pixels, channels]: as in MaxPoolForward with relu, 0 to
// 3 or kNoChoice. With other pooling, BatchNormPoolBytes bytes. Without pool, BatchNormMaskBytes
// bytes: BatchNormGradient::mask.
using BatchNormApply = void(const BatchNormShape& shape, const void* x, const float* scale,
                            const float* shift, const BatchNormAddend& addend, void* y,
                            uint8_t* choice);

// Bytes of the activation's mask, in a layout of the kernels, that Apply writes and both backward
// passes read in place of y. 0: these kernels have no such mask for the shape, and choice is not
// written without pool.
using BatchNormMaskBytes = size_t(const BatchNormShape& shape);

// Bytes about pooling other than 2x2, in a layout of the kernels, that Apply writes to choice and
// both backward passes read. 0: these kernels do not fuse the shape's pooling with batch norm.
using BatchNormPoolBytes = size_t(const BatchNormShape& shape);

// The batch norm of a shortcut, whose values are the addend of a sum (BatchNormAddend). Its
// gradient is that of the sum, so that one pass of backward serves both batch norms.
struct BatchNormShortcut {
  const void* x = nullptr;  // null: no such shortcut
  // As in BatchNormGradient.
  const float* scale = nullptr;
  const float* shift = nullptr;
  const float* mean = nullptr;
  const float* inverse_deviation = nullptr;
  // Outputs of BackwardParameters and inputs of BackwardData, like the sum's own.
  float* dgamma = nullptr;
  float* dbeta = nullptr;
  void* dx = nullptr;  // output of BackwardData; may be x
};

// Inputs of both backward passes. dy [out_pixels, channels]; x, scale, shift, choice as in forward;
// mean, inverse_deviation [channels] = 1 / sqrt(variance + epsilon).
struct BatchNormGradient {
  const void* x;
  const void* dy;
  // Added to dy, and the sum rounded to the type, by BackwardParameters, which must then write dz:
  // the gradient of another consumer of the output. Shaped like dy; not dz. Null: 0. Always null
  // with 2x2 pooling, and with an activation without pooling whose mask is recomputed from x.
  const void* dy_addend = nullptr;
  // dy_addend covers the pixels at multiples of this along both axes, [samples, ceil(height /
  // stride), ceil(width / stride), channels], and is 0 at all others. 1 unless the mask is one that
  // forward wrote; otherwise there are fewer than 2^31 pixels.
  int64_t dy_addend_stride = 1;
  // Output of forward, from which the activation's mask is derived, or the mask that forward wrote;
  // both null to recompute the mask from x, which is impossible with an addend. Not read with pool.
  const void* y = nullptr;
  const uint8_t* mask = nullptr;
  const uint8_t* choice;
  const float* scale;
  const float* shift;
  const float* mean;
  const float* inverse_deviation;
  double pixels;  // number of pixels that mean and deviation cover
  // As in BatchNormMomentum, if the statistics cover more pixels than x.
  const double* shared_pixels = nullptr;
  // Not with pool. With an activation, BackwardParameters must then write dz, and BackwardData gets
  // that as dy, with shape.activation kNone.
  BatchNormShortcut shortcut = {};
};

// -> dgamma, dbeta [channels], over the pixels of x; zero without pixels. dz, shaped like dy or
// null, may be dy; always null with 2x2 pooling: receives dy where the activation's mask is set,
// else 0. dz is the addend's gradient, and may be dy of BackwardData, without pool with
// shape.activation kNone. With gradient.dy_addend, dz is required.
using BatchNormBackwardParameters = void(const BatchNormShape& shape,
                                         const BatchNormGradient& gradient, float* dgamma,
                                         float* dbeta, void* dz);

// dgamma, dbeta [channels], the results of the previous pass summed over all gradient.pixels -> dx
// [pixels, channels]; may be the same array as x, but not as dy.
using BatchNormBackwardData = void(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                   const float* dgamma, const float* dbeta, void* dx);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_BATCH_NORM_H_
