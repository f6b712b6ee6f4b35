// The forms of instructions that the interpreter supports: opcodes with all their modifiers, such
// as add.rn.f32.
#ifndef MUSTER_TESTS_GPU_PTX_FORM_H_
#define MUSTER_TESTS_GPU_PTX_FORM_H_

#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "kernels/data_type.h"
#include "tests/gpu/ptx/instruction.h"
#include "tests/gpu/ptx/thread.h"

namespace muster::ptx {

// A form that computes one value from register operands.
struct Form {
  Handler run = nullptr;
  // Widths of the operands in bits, destination first; 1 is a predicate.
  std::array<int, 5> bits = {};
  int operands = 0;
  // Whether registers may be wider than the operands (cvt).
  bool wide_registers = false;
};

using FormTable = absl::flat_hash_map<std::string, Form>;

// All forms by opcode. Memory accesses and control flow are decoded apart.
const FormTable& Forms();

// For the files that define forms.
void AddIntegerForms(FormTable& forms);
void AddFloatForms(FormTable& forms);
void AddComparisonForms(FormTable& forms);
void AddConversionForms(FormTable& forms);
void AddAddressForms(FormTable& forms);

template <typename T>
inline constexpr int kBits = std::is_same_v<T, bool> ? 1 : 8 * static_cast<int>(sizeof(T));

template <auto kFunction>
struct Evaluation;

// Executes an instruction by a function of its operands.
template <typename Result, typename... Operands, Result (*kFunction)(Operands...)>
struct Evaluation<kFunction> {
  static const Instruction* Run(const Instruction& instruction, Thread& thread) {
    return RunWith(instruction, thread, std::index_sequence_for<Operands...>());
  }
  template <size_t... kIndex>
  static const Instruction* RunWith(const Instruction& instruction, Thread& thread,
                                    std::index_sequence<kIndex...>) {
    thread.Set(instruction.slots[0],
               kFunction(thread.Get<Operands>(instruction.slots[1 + kIndex])...));
    return &instruction + 1;
  }
  static Form Make() {
    return {Run, {kBits<Result>, kBits<Operands>...}, 1 + static_cast<int>(sizeof...(Operands))};
  }
};

// The form whose value `kFunction` computes: its parameters are the operands in their order.
template <auto kFunction>
Form FormOf() {
  return Evaluation<kFunction>::Make();
}

// The name of a type in opcodes.
template <typename T>
constexpr std::string_view TypeName() {
  if constexpr (std::is_same_v<T, float>) return "f32";
  if constexpr (std::is_same_v<T, double>) return "f64";
  if constexpr (std::is_same_v<T, bool>) return "pred";
  if constexpr (std::is_same_v<T, kernels::Float16>) return "f16";
  if constexpr (std::is_same_v<T, kernels::Bfloat16>) return "bf16";
  if constexpr (std::is_same_v<T, int8_t>) return "s8";
  if constexpr (std::is_same_v<T, uint8_t>) return "u8";
  if constexpr (std::is_same_v<T, int16_t>) return "s16";
  if constexpr (std::is_same_v<T, uint16_t>) return "u16";
  if constexpr (std::is_same_v<T, int32_t>) return "s32";
  if constexpr (std::is_same_v<T, uint32_t>) return "u32";
  if constexpr (std::is_same_v<T, int64_t>) return "s64";
  if constexpr (std::is_same_v<T, uint64_t>) return "u64";
}

// "name.type", for example "add.u32".
template <typename T>
std::string Opcode(absl::string_view name) {
  return absl::StrCat(name, ".", std::string(TypeName<T>()));
}

// Adds `name`.type for each type, computed by Operation::Of<type>.
template <typename Operation, typename... T>
void AddForms(FormTable& forms, absl::string_view name) {
  ((forms[Opcode<T>(name)] = FormOf<&Operation::template Of<T>>()), ...);
}

// Adds `name`.b16 and so on for unsigned types of these widths.
template <typename Operation, typename... T>
void AddBitForms(FormTable& forms, absl::string_view name) {
  ((forms[absl::StrCat(name, ".b", kBits<T>)] = FormOf<&Operation::template Of<T>>()), ...);
}

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_FORM_H_
