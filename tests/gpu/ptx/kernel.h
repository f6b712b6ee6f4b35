// A kernel decoded for execution.
#ifndef MUSTER_TESTS_GPU_PTX_KERNEL_H_
#define MUSTER_TESTS_GPU_PTX_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/ptx/instruction.h"

namespace muster::ptx {

// The text of a module.
class SourceText {
 public:
  explicit SourceText(std::string_view text);

  std::string_view text() const { return text_; }
  // A line, counted from 1, without white space around it.
  std::string_view Line(uint32_t number) const;

 private:
  std::string text_;
  std::vector<size_t> begins_;  // beginning of each line
};

// A kernel parameter's place in the parameter space.
struct Parameter {
  size_t offset;
  size_t bytes;
  size_t alignment;
};

// A register that has the same value in all threads: an immediate operand or an address.
struct Constant {
  uint32_t slot;
  uint64_t value;
};

// Immutable.
struct Kernel {
  std::string name;  // mangled
  std::vector<Parameter> parameters;
  size_t parameter_bytes = 0;
  size_t static_shared_bytes = 0;
  uint32_t max_threads = 1024;  // per block (.maxntid)

  // For the interpreter.
  std::vector<Instruction> code;
  std::vector<uint32_t> lines;  // source line of each instruction
  std::shared_ptr<const SourceText> source;
  uint32_t slots = 0;     // 64-bit registers per thread
  uint32_t accesses = 0;  // number of memory instructions
  std::vector<Constant> constants;
  bool has_barrier = false;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_KERNEL_H_
