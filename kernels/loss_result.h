// What a loss says of the rows that it was computed of.
#ifndef MUSTER_KERNELS_LOSS_RESULT_H_
#define MUSTER_KERNELS_LOSS_RESULT_H_

namespace muster::kernels {

// Two float64, so that ranks add theirs up as an array of such.
struct LossResult {
  double loss_sum = 0;  // over the rows
  double correct = 0;   // rows that were told right
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_LOSS_RESULT_H_
