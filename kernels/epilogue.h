// Operations that a convolution applies to each of its sums before storing it.
#ifndef MUSTER_KERNELS_EPILOGUE_H_
#define MUSTER_KERNELS_EPILOGUE_H_

#include "kernels/activation.h"

namespace muster::kernels {

//   y = activation(sum * scale + shift + addend)
struct Epilogue {
  const float* scale = nullptr;  // [out_channels]; null: 1
  // [out_channels]; null: 0. A bias, or the shift of a folded batch norm.
  const float* shift = nullptr;
  const void* addend = nullptr;  // shaped like y and not overlapping it; null: 0
  Activation activation = Activation::kNone;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_EPILOGUE_H_
