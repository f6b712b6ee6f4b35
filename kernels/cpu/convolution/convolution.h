// Convolutions and linear layers on the CPU.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_CONVOLUTION_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/cpu/table/instruction_set.h"

namespace muster::kernels::cpu {

// Selects the engine: one that multiplies the compute type if `set` supports it (with AMX if the
// CPU has it), otherwise one that rounds the operands and multiplies float32. INVALID_ARGUMENT for
// an invalid shape. The CPU must support `set`.
absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options,
    InstructionSet set = DetectInstructionSet());

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_CONVOLUTION_H_
