// What a loss says of the rows that it was computed of.
#ifndef MUSTER_KERNELS_LOSS_RESULT_H_
#define MUSTER_KERNELS_LOSS_RESULT_H_

#include <cstdint>

namespace muster::kernels {

struct LossResult {
  double loss_sum = 0;   // over the rows
  uint64_t correct = 0;  // rows that were told right
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_LOSS_RESULT_H_
