// An epilogue as a pass of its own, for convolutions that cannot do it while they store.
#ifndef MUSTER_KERNELS_CPU_EPILOGUE_H_
#define MUSTER_KERNELS_CPU_EPILOGUE_H_

#include <cstdint>
#include <vector>

#include "kernels/convolution.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// Over arrays [pixels, channels] of one type.
class EpiloguePass {
 public:
  // `kernels` outlives the pass.
  EpiloguePass(const KernelTable& kernels, DataType type, int64_t channels)
      : kernels_(kernels), type_(type), zeros_(channels, 0.0f), ones_(channels, 1.0f) {}

  // In place, on sums that were rounded to the type already.
  void Run(int64_t pixels, const Epilogue& epilogue, void* y) const {
    const auto channels = static_cast<int64_t>(zeros_.size());
    const int64_t count = pixels * channels;
    if (epilogue.scale != nullptr || epilogue.shift != nullptr) {
      kernels_.batch_norm_apply(
          {.rows = pixels, .channels = channels, .activation = epilogue.activation, .type = type_},
          y, epilogue.scale != nullptr ? epilogue.scale : ones_.data(),
          epilogue.shift != nullptr ? epilogue.shift : zeros_.data(), epilogue.addend, y, nullptr);
    } else if (epilogue.addend != nullptr) {
      kernels_.add_forward(type_, count, y, nullptr, epilogue.addend, epilogue.activation, y);
    } else if (epilogue.activation != Activation::kNone) {
      kernels_.activation_forward(type_, epilogue.activation, count, y, y);
    }
  }

 private:
  const KernelTable& kernels_;
  const DataType type_;
  const std::vector<float> zeros_;
  const std::vector<float> ones_;
};

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_EPILOGUE_H_
