// Syntax tree of a PTX module. All names refer to the module's text.
#ifndef MUSTER_TESTS_GPU_PTX_SYNTAX_H_
#define MUSTER_TESTS_GPU_PTX_SYNTAX_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::ptx {

enum class NumberType { kInteger, kFloat, kDouble };

struct Operand {
  enum class Kind {
    kName,     // a register, symbol or label
    kNumber,   // an immediate
    kAddress,  // [name + number], or [number] if the name is empty
    kList,     // {elements} or (elements)
  };
  Kind kind = Kind::kName;
  std::string_view name;
  uint64_t number = 0;  // bits of an immediate; two's complement of an offset
  NumberType number_type = NumberType::kInteger;
  std::vector<Operand> elements;
};

// A register declaration: `name` alone or, if count > 0, name0 to name(count-1).
struct RegisterDeclaration {
  std::string_view type;  // without the dot: b32, f64, pred, ...
  std::string_view name;
  uint32_t count = 0;
};

// A variable in a state space, or a parameter.
struct Variable {
  std::string_view space;  // shared, local, param, global, const
  std::string_view type;
  std::string_view name;
  uint64_t alignment = 1;
  uint64_t elements = 1;  // 0 for an array without size
};

struct Statement {
  enum class Kind { kInstruction, kLabel, kRegister, kVariable, kOpenScope, kCloseScope };
  Kind kind = Kind::kInstruction;
  uint32_t line = 0;
  // kInstruction.
  std::string_view guard;  // predicate register; empty if there is none
  bool guard_negated = false;
  std::string_view opcode;  // with its modifiers
  std::vector<Operand> operands;
  // kLabel: the label's name.
  std::string_view label;
  RegisterDeclaration registers;  // kRegister
  Variable variable;              // kVariable
};

struct Function {
  std::string_view name;
  bool entry = false;  // a kernel
  std::vector<Variable> results;
  std::vector<Variable> parameters;
  uint32_t max_threads = 1024;
  std::vector<Statement> body;
};

struct SyntaxTree {
  std::vector<Function> functions;  // with a body
  std::vector<Variable> shared;     // declared outside of functions
};

// INVALID_ARGUMENT for a syntax error, UNIMPLEMENTED for directives that are not supported.
absl::StatusOr<SyntaxTree> ParseSyntax(std::string_view ptx);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_SYNTAX_H_
