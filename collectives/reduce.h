// Element-wise reduction of several arrays, vectorized for the host CPU.
#ifndef MUSTER_COLLECTIVES_REDUCE_H_
#define MUSTER_COLLECTIVES_REDUCE_H_

#include <cstddef>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// outputs[j][i] = op over k of inputs[k][i], applied in the order of `inputs`. bfloat16 and float16
// are reduced in float32 and rounded once; integers wrap; min and max of a NaN are unspecified. The
// result does not depend on the instruction set. An output may be an input; arrays must not overlap
// otherwise.
void ReduceArrays(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                  size_t count, DataType type, ReduceOp op);

// Instruction sets that this CPU supports, best first: subset of "avx512", "avx2", "plain".
absl::Span<const absl::string_view> ReduceInstructionSets();

// Like ReduceArrays, with the given one of ReduceInstructionSets.
void ReduceArraysWith(absl::string_view instruction_set, absl::Span<const void* const> inputs,
                      absl::Span<void* const> outputs, size_t count, DataType type, ReduceOp op);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_REDUCE_H_
