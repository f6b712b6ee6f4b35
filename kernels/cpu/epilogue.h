// An epilogue as a pass of its own, for convolutions that cannot do it while they store.
#ifndef MUSTER_KERNELS_CPU_EPILOGUE_H_
#define MUSTER_KERNELS_CPU_EPILOGUE_H_

#include <cstdint>

#include "kernels/convolution.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// y float32 [pixels, channels], in place.
inline void ApplyEpilogue(const KernelTable& kernels, int64_t pixels, int64_t channels,
                          const Epilogue& epilogue, float* y) {
  const int64_t count = pixels * channels;
  if (epilogue.scale != nullptr || epilogue.shift != nullptr) {
    for (int64_t at = 0; at < count; at += channels) {
      for (int64_t c = 0; c < channels; ++c) {
        const float scaled = epilogue.scale != nullptr ? y[at + c] * epilogue.scale[c] : y[at + c];
        y[at + c] = epilogue.shift != nullptr ? scaled + epilogue.shift[c] : scaled;
      }
    }
  }
  if (epilogue.addend != nullptr) {
    kernels.add_forward(count, y, 1, static_cast<const float*>(epilogue.addend),
                        epilogue.activation, y);
  } else if (epilogue.activation == Activation::kRelu) {
    kernels.relu_forward(count, y, y);
  } else if (epilogue.activation == Activation::kRelu6) {
    kernels.relu6_forward(count, y, y);
  }
}

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_EPILOGUE_H_
