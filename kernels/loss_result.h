// Result of a loss over the samples that it was computed for.
#ifndef MUSTER_KERNELS_LOSS_RESULT_H_
#define MUSTER_KERNELS_LOSS_RESULT_H_

namespace muster::kernels {

// Two float64 values, so that ranks can all-reduce results as arrays.
struct LossResult {
  double loss_sum = 0;  // over the samples
  double correct = 0;   // number of correctly predicted samples
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_LOSS_RESULT_H_
