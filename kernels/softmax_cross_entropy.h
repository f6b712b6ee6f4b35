// Softmax cross-entropy with label smoothing (Szegedy et al. 2016), loss and gradient in one call.
#ifndef MUSTER_KERNELS_SOFTMAX_CROSS_ENTROPY_H_
#define MUSTER_KERNELS_SOFTMAX_CROSS_ENTROPY_H_

#include <cstdint>

#include "kernels/loss_result.h"

namespace muster::kernels {

struct CrossEntropyOptions {
  int64_t samples = 0;
  int64_t classes = 1;
  double label_smoothing = 0;  // the target is (1 - s) at the label plus s / classes everywhere
  double scale = 1;            // factor of the gradient
};

// logits float32 [samples, classes]; labels int32 [samples], each in [0, classes) -> dlogits like
// logits, also multiplied by *loss_scale unless that is null; may be null itself; *result, where a
// sample is correct if its first maximum is at the label. All are in the memory of the arrays.
using SoftmaxCrossEntropy = void(const CrossEntropyOptions& options, const float* logits,
                                 const int32_t* labels, const double* loss_scale, float* dlogits,
                                 LossResult* result);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_SOFTMAX_CROSS_ENTROPY_H_
