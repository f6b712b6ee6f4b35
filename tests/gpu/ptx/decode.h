// Translates the syntax tree of a kernel into the interpreter's internal form: registers become
// slots, branches become distances, and functions are inlined.
#ifndef MUSTER_TESTS_GPU_PTX_DECODE_H_
#define MUSTER_TESTS_GPU_PTX_DECODE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tests/gpu/ptx/kernel.h"
#include "tests/gpu/ptx/syntax.h"

namespace muster::ptx {

// Decodes `entry`, a function of `tree`, whose names refer to `source`. INVALID_ARGUMENT for
// operands that do not fit their instruction, UNIMPLEMENTED for instructions that are not
// supported.
absl::StatusOr<Kernel> DecodeKernel(const SyntaxTree& tree, const Function& entry,
                                    std::shared_ptr<const SourceText> source);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_DECODE_H_
