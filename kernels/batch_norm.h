// Batch normalisation (Ioffe & Szegedy 2015) over the channels of NHWC activations, fused with the
// sum of a residual block, the activation and the 2x2 max pooling that may follow it.
//
// Activations and their gradients (void*) are stored as the shape says, arrays over the channels
// are float32; all are 64-byte aligned unless said otherwise. Rows that are absent from a batch do
// not exist: the statistics are of the rows present.
#ifndef MUSTER_KERNELS_BATCH_NORM_H_
#define MUSTER_KERNELS_BATCH_NORM_H_

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/data_type.h"
#include "kernels/pooling.h"

namespace muster::kernels {

struct BatchNormShape {
  int64_t rows = 0;
  int64_t height = 1;
  int64_t width = 1;
  int64_t channels = 1;
  Activation activation = Activation::kNone;  // of the normalised values, the addend included
  // Then the largest of each 2x2; an odd last line or column is dropped. Needs kRelu.
  bool pool = false;
  DataType type = DataType::kFloat32;  // of x, addend, y, dy, dz and dx

  int64_t pixels() const { return rows * height * width; }
  int64_t out_height() const { return pool ? height / 2 : height; }
  int64_t out_width() const { return pool ? width / 2 : width; }
  int64_t out_pixels() const { return rows * out_height() * out_width(); }
};

// x [pixels, channels] -> mean [channels], variance [channels], the biased one. pixels > 0.
using BatchNormStatistics = void(const BatchNormShape& shape, const void* x, float* mean,
                                 float* variance);

// From statistics to what Apply multiplies by and adds. All arrays [channels].
struct BatchNormScaling {
  int64_t channels = 1;
  double epsilon = 1e-5;
};

//   inverse_deviation = 1 / sqrt(variance + epsilon); it may be the same array as variance
//   scale = *factor * gamma * inverse_deviation
//   shift = *factor * beta + (bias - mean) * scale
// factor, of all normalised values, may be null: 1. bias, which x does not contain yet, may be
// null: 0.
using BatchNormScale = void(const BatchNormScaling& scaling, const float* factor, const float* mean,
                            const float* variance, const float* gamma, const float* beta,
                            const float* bias, float* inverse_deviation, float* scale,
                            float* shift);

// Statistics that several devices share: each makes sums, float64 [2 * channels + 1], of its
// values, of their squares and of its pixels, which are then added up over the devices; in double
// nothing is lost where a mean is far from zero. mean, variance [channels] of `pixels`; not read
// where that is 0.
using BatchNormToSums = void(int64_t channels, double pixels, const float* mean,
                             const float* variance, double* sums);
// And back, to the statistics of all their pixels; of none nothing is written.
using BatchNormFromSums = void(int64_t channels, const double* sums, float* mean, float* variance);

struct BatchNormMomentum {
  int64_t channels = 1;
  double pixels = 1;  // that the statistics are of
  double momentum = 0.1;
  // Where devices share statistics, and only the device knows of how many pixels: in its memory, in
  // the place of `pixels`. Nothing happens where there is none.
  const double* shared_pixels = nullptr;
};

// The running statistics take in a batch's, as in PyTorch: running += momentum * (batch - running),
// of the variance the unbiased one. All arrays [channels]. Nothing happens where *active is 0;
// null: it is not.
using BatchNormRunning = void(const BatchNormMomentum& momentum, const float* active,
                              const float* mean, const float* variance, float* running_mean,
                              float* running_variance);

// x -> y [out_pixels, channels] = pool(activation(x * scale + shift + addend)), with scale, shift
// [channels]. addend like x, or null; never with pool. Without pool y may be x or addend. choice
// uint8 [out_pixels, channels], only with pool, may be null: as MaxPoolForward's with relu, 0 to 3
// or kNoChoice.
using BatchNormApply = void(const BatchNormShape& shape, const void* x, const float* scale,
                            const float* shift, const void* addend, void* y, uint8_t* choice);

// What both passes of the backward direction read. dy [out_pixels, channels]; x, scale, shift,
// choice as in forward; mean, inverse_deviation [channels] = 1 / sqrt(variance + epsilon).
struct BatchNormGradient {
  const void* x;
  const void* dy;
  // Forward's output, whose bounds tell where the activation lets dy pass; null where that is to be
  // computed from x again, which it cannot be after an addend. Not read with pool.
  const void* y = nullptr;
  const uint8_t* choice;
  const float* scale;
  const float* shift;
  const float* mean;
  const float* inverse_deviation;
  double pixels;  // that mean and deviation are of
  // As BatchNormMomentum's: more than x's.
  const double* shared_pixels = nullptr;
};

// -> dgamma, dbeta [channels], over x's own pixels; zero without any. dz like dy, or null; may be
// dy, never with pool: receives dy where the activation lets it pass, else 0. That is the addend's
// gradient, and what BackwardData may take as dy when shape.activation is kNone.
using BatchNormBackwardParameters = void(const BatchNormShape& shape,
                                         const BatchNormGradient& gradient, float* dgamma,
                                         float* dbeta, void* dz);

// dgamma, dbeta [channels], the sums over gradient.pixels of what the pass before wrote -> dx
// [pixels, channels]; may be the same array as x, not as dy.
using BatchNormBackwardData = void(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                   const float* dgamma, const float* dbeta, void* dx);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_BATCH_NORM_H_
