// What a convolution does to each of its sums before it stores it.
#ifndef MUSTER_KERNELS_EPILOGUE_H_
#define MUSTER_KERNELS_EPILOGUE_H_

#include "kernels/activation.h"

namespace muster::kernels {

//   y = activation(sum * scale + shift + addend)
struct Epilogue {
  const float* scale = nullptr;  // [out_channels]; null: 1
  // [out_channels]; null: 0. A bias, or what batch norm leaves of one.
  const float* shift = nullptr;
  const void* addend = nullptr;  // like y, apart from it; null: 0
  Activation activation = Activation::kNone;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_EPILOGUE_H_
