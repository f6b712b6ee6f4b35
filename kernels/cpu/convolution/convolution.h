// Convolutions and linear layers on the processor.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_CONVOLUTION_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/cpu/table/instruction_set.h"

namespace muster::kernels::cpu {

// Chooses the engine: one that multiplies the compute type where `set` has one, by AMX where the
// processor has it, and otherwise one that multiplies float32, with operands rounded before.
// INVALID_ARGUMENT for an impossible shape. The processor must support `set`.
absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options,
    InstructionSet set = DetectInstructionSet());

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_CONVOLUTION_H_
