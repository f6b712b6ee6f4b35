// Softmax cross-entropy with label smoothing (Szegedy et al. 2016), loss and gradient at once.
#ifndef MUSTER_KERNELS_SOFTMAX_CROSS_ENTROPY_H_
#define MUSTER_KERNELS_SOFTMAX_CROSS_ENTROPY_H_

#include <cstdint>

namespace muster::kernels {

struct CrossEntropyOptions {
  int64_t rows = 0;
  int64_t classes = 1;
  double label_smoothing = 0;  // the target is (1 - s) at the label plus s / classes everywhere
  float scale = 1;             // of the gradient
};

struct CrossEntropyResult {
  double loss_sum = 0;   // over the rows
  uint64_t correct = 0;  // rows whose first largest logit is at the label
};

// logits float32 [rows, classes]; labels int32 [rows], each in [0, classes) -> dlogits like logits,
// may be null; result, where the arrays are.
using SoftmaxCrossEntropy = void(const CrossEntropyOptions& options, const float* logits,
                                 const int32_t* labels, float* dlogits, CrossEntropyResult* result);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_SOFTMAX_CROSS_ENTROPY_H_
