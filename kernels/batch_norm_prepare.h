// BatchNormPrepare for devices on which its three steps are separate calls.
#ifndef MUSTER_KERNELS_BATCH_NORM_PREPARE_H_
#define MUSTER_KERNELS_BATCH_NORM_PREPARE_H_

#include "kernels/batch_norm.h"

namespace muster::kernels {

template <BatchNormStatistics* kStatistics, BatchNormRunning* kRunning, BatchNormScale* kScale>
void PrepareInSteps(const BatchNormShape& shape, const void* x, const BatchNormTraining& training) {
  float* const variance = training.inverse_deviation;  // the variance at first
  kStatistics(shape, x, training.mean, variance);
  kRunning({.channels = shape.channels,
            .pixels = static_cast<double>(shape.pixels()),
            .momentum = training.momentum},
           training.active, training.mean, variance, training.running_mean,
           training.running_variance);
  kScale({.channels = shape.channels, .epsilon = training.epsilon}, training.factor, training.mean,
         variance, training.gamma, training.beta, /*bias=*/nullptr, training.inverse_deviation,
         training.scale, training.shift);
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_BATCH_NORM_PREPARE_H_
