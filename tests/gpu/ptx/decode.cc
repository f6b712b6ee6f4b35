#include "tests/gpu/ptx/decode.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "tests/gpu/ptx/access_form.h"
#include "tests/gpu/ptx/control.h"
#include "tests/gpu/ptx/definedness.h"
#include "tests/gpu/ptx/form.h"
#include "tests/gpu/ptx/registers.h"
#include "tests/gpu/ptx/type_size.h"

namespace muster::ptx {
namespace {

constexpr int kMaxCallDepth = 8;

size_t AlignUp(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

size_t BytesOf(const Variable& variable) { return TypeBytes(variable.type) * variable.elements; }

// The kernel's own body or that of a function inlined into it.
struct Frame {
  const Function* function;
  std::deque<Scope> scopes;  // innermost last
  std::map<std::string_view, size_t> labels;
  std::vector<std::pair<size_t, std::string_view>> jumps;  // instruction and its label
  std::vector<size_t> returns;  // jumps to the end of an inlined function
};

class Decoder {
 public:
  // Reads of the slots in `flags` are checked when the kernel runs: slots that follow all others
  // record whether they are initialised.
  Decoder(const SyntaxTree& tree, std::shared_ptr<const SourceText> source,
          const std::map<uint32_t, uint32_t>& flags)
      : tree_(tree), flags_(flags) {
    kernel_.source = std::move(source);
  }

  absl::Status Decode(const Function& entry) {
    kernel_.name = std::string(entry.name);
    kernel_.max_threads = entry.max_threads;
    for (const Variable& variable : entry.parameters) {
      const size_t offset = AlignUp(kernel_.parameter_bytes, variable.alignment);
      kernel_.parameters.push_back({offset, BytesOf(variable), variable.alignment});
      kernel_.parameter_bytes = offset + BytesOf(variable);
      addresses_[variable.name] = offset;
    }
    DeclareShared(entry);
    for (const auto& [slot, flag] : flags_) Append({SetFlag, 0, {flag}}, 0, 0);
    RETURN_IF_ERROR(DecodeBody(entry, {}, {}));
    kernel_.slots = slots_.count() + static_cast<uint32_t>(flags_.size());
    kernel_.constants = slots_.constants();
    return absl::OkStatus();
  }

  std::set<uint32_t> PossiblyUndefined() const {
    return FindPossiblyUndefined(kernel_.code, uses_, slots_.count(), slots_.defined());
  }
  uint32_t slots() const { return slots_.count(); }
  Kernel Take() { return std::move(kernel_); }

 private:
  absl::Status Error(absl::StatusCode code, absl::string_view problem) const {
    return absl::Status(code,
                        absl::StrCat(kernel_.name, ": PTX line ", line_, " `",
                                     std::string(kernel_.source->Line(line_)), "`: ", problem));
  }
  absl::Status Invalid(absl::string_view problem) const {
    return Error(absl::StatusCode::kInvalidArgument, problem);
  }
  absl::Status Unsupported(absl::string_view what) const {
    return Error(absl::StatusCode::kUnimplemented, absl::StrCat("unsupported ", what));
  }

  // Assigns addresses to the shared variables of the module and of the kernel. Those of dynamic
  // size follow the static ones.
  void DeclareShared(const Function& entry) {
    std::vector<const Variable*> dynamic;
    size_t& bytes = kernel_.static_shared_bytes;
    const auto declare = [&](const Variable& variable) {
      if (variable.space != "shared") return;
      if (variable.elements == 0) return dynamic.push_back(&variable);
      addresses_[variable.name] = AlignUp(bytes, variable.alignment);
      bytes = addresses_[variable.name] + BytesOf(variable);
    };
    for (const Variable& variable : tree_.shared) declare(variable);
    for (const Statement& statement : entry.body) {
      if (statement.kind == Statement::Kind::kVariable) declare(statement.variable);
    }
    for (const Variable* variable : dynamic) bytes = AlignUp(bytes, variable->alignment);
    for (const Variable* variable : dynamic) addresses_[variable->name] = bytes;
  }

  // Decodes the kernel, or a function whose parameters and results are in registers.
  absl::Status DecodeBody(const Function& function, const std::vector<Register>& parameters,
                          const std::vector<Register>& results) {
    if (frames_.size() >= kMaxCallDepth) return Unsupported("depth of calls");
    frames_.push_back({&function, {Scope()}, {}, {}, {}});
    for (size_t i = 0; i < parameters.size(); ++i) {
      scope().Declare(function.parameters[i].name, parameters[i]);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      scope().Declare(function.results[i].name, results[i]);
    }
    for (const Statement& statement : function.body) {
      line_ = statement.line;
      RETURN_IF_ERROR(DecodeStatement(statement));
    }
    Frame& frame = frames_.back();
    const size_t end = kernel_.code.size();
    for (const auto& [at, label] : frame.jumps) {
      const auto found = frame.labels.find(label);
      if (found == frame.labels.end()) {
        line_ = kernel_.lines[at];
        return Invalid(absl::StrCat("unknown label ", std::string(label)));
      }
      SetTarget(at, found->second);
    }
    for (const size_t at : frame.returns) SetTarget(at, end);
    frames_.pop_back();
    // A label at the end needs an instruction to jump to.
    if (frames_.empty()) Emit({Exit}, 0);
    return absl::OkStatus();
  }

  Scope& scope() { return frames_.back().scopes.back(); }

  absl::Status DecodeStatement(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::kOpenScope:
        frames_.back().scopes.emplace_back();
        return absl::OkStatus();
      case Statement::Kind::kCloseScope:
        frames_.back().scopes.pop_back();
        return absl::OkStatus();
      case Statement::Kind::kLabel:
        frames_.back().labels[statement.label] = kernel_.code.size();
        return absl::OkStatus();
      case Statement::Kind::kRegister:
        if (scope().Declare(statement.registers, slots_)) return absl::OkStatus();
        return Unsupported("register type");
      case Statement::Kind::kVariable:
        return DecodeVariable(statement.variable);
      case Statement::Kind::kInstruction:
        return DecodeGuarded(statement);
    }
    return absl::OkStatus();
  }

  absl::Status DecodeVariable(const Variable& variable) {
    if (variable.space == "param") {
      if (variable.elements != 1) return Unsupported("array as an argument of a function");
      scope().Declare(variable.name, {slots_.Take(), 8 * static_cast<int>(BytesOf(variable))});
    } else if (frames_.size() > 1) {
      return Unsupported("shared variable of a function");
    }
    return absl::OkStatus();
  }

  absl::Status DecodeGuarded(const Statement& statement) {
    if (statement.guard.empty()) return DecodeInstruction(statement);
    Operand guard;
    guard.name = statement.guard;
    ASSIGN_OR_RETURN(const uint32_t predicate, SlotOf(guard, 1, Width::kExact));
    const std::string_view opcode = statement.opcode;
    if (opcode == "bra" || opcode == "bra.uni") {
      return DecodeJump(statement, statement.guard_negated ? JumpUnless : JumpIf, predicate);
    }
    const size_t skip = Emit({statement.guard_negated ? JumpIf : JumpUnless, 0, {predicate}}, 0, 1);
    RETURN_IF_ERROR(DecodeInstruction(statement));
    SetTarget(skip, kernel_.code.size());
    return absl::OkStatus();
  }

  absl::Status DecodeInstruction(const Statement& statement) {
    const std::string_view opcode = statement.opcode;
    if (opcode == "bra" || opcode == "bra.uni") return DecodeJump(statement, Jump, std::nullopt);
    if (opcode == "ret" || opcode == "ret.uni" || opcode == "exit") return DecodeEnd(opcode);
    if (opcode == "bar.sync" || opcode == "barrier.sync" || opcode == "barrier.sync.aligned") {
      return DecodeBarrier(statement);
    }
    if (opcode == "trap") {
      Emit({Trap}, 0);
      return absl::OkStatus();
    }
    if (opcode == "membar.gl" || opcode == "fence.acq_rel.gpu") {
      Emit({Fence}, 0);
      return absl::OkStatus();
    }
    if (opcode.starts_with("atom.")) return DecodeAtomic(statement);
    if (opcode == "call" || opcode == "call.uni") return DecodeCall(statement);
    if (opcode.starts_with("ld.") || opcode.starts_with("st.")) return DecodeAccess(statement);
    for (const Operand& operand : statement.operands) {
      if (operand.kind == Operand::Kind::kList) return DecodePacking(statement);
    }
    const auto form = Forms().find(std::string(opcode));
    if (form == Forms().end()) {
      return Unsupported(absl::StrCat("instruction ", std::string(opcode)));
    }
    return opcode.starts_with("selp.") ? DecodeSelection(statement, form->second)
                                       : DecodeForm(statement, form->second);
  }

  absl::Status DecodeForm(const Statement& statement, const Form& form) {
    ASSIGN_OR_RETURN(const Instruction instruction, FormInstruction(statement, form));
    Emit(instruction, 1, form.operands);
    return absl::OkStatus();
  }

  // Of selp's two values only the selected one must be initialised: compilers merge a branch that
  // computes a value and one that does not into a selection.
  absl::Status DecodeSelection(const Statement& statement, const Form& form) {
    ASSIGN_OR_RETURN(const Instruction selection, FormInstruction(statement, form));
    const uint32_t predicate = selection.slots[3];
    CheckSlot(predicate);
    for (const int value : {1, 2}) {
      const auto flag = flags_.find(selection.slots[value]);
      if (flag == flags_.end()) continue;
      Append({CheckFlagIf, value == 1 ? 1 : 0, {flag->second, predicate}}, 0, 0);
    }
    EmitChecked(selection, 1, form.operands);
    return absl::OkStatus();
  }

  absl::StatusOr<Instruction> FormInstruction(const Statement& statement, const Form& form) {
    if (statement.operands.size() != static_cast<size_t>(form.operands)) {
      return Invalid(absl::StrCat("expected ", form.operands, " operands"));
    }
    Instruction instruction{form.run};
    const Width width = form.wide_registers ? Width::kAtLeast : Width::kExact;
    for (int i = 0; i < form.operands; ++i) {
      const Operand& operand = statement.operands[i];
      if (i == 0 && !IsRegister(operand)) return Invalid("the destination is not a register");
      ASSIGN_OR_RETURN(instruction.slots[i], SlotOf(operand, form.bits[i], width));
    }
    return instruction;
  }

  absl::Status DecodeJump(const Statement& statement, Handler run,
                          std::optional<uint32_t> predicate) {
    if (statement.operands.size() != 1 || statement.operands[0].kind != Operand::Kind::kName) {
      return Invalid("expected a label");
    }
    const size_t at = Emit({run, 0, {predicate.value_or(0)}}, 0, predicate.has_value() ? 1 : 0);
    frames_.back().jumps.emplace_back(at, statement.operands[0].name);
    return absl::OkStatus();
  }

  absl::Status DecodeEnd(std::string_view opcode) {
    if (frames_.size() == 1 || opcode == "exit") {
      Emit({Exit}, 0);
    } else {
      frames_.back().returns.push_back(Emit({Jump}, 0));
    }
    return absl::OkStatus();
  }

  absl::Status DecodeBarrier(const Statement& statement) {
    const auto& operands = statement.operands;
    if (operands.size() != 1 || operands[0].kind != Operand::Kind::kNumber ||
        operands[0].number != 0) {
      return Unsupported("barrier other than 0 of all threads");
    }
    kernel_.has_barrier = true;
    Emit({Barrier}, 0);
    return absl::OkStatus();
  }

  // call (results), function, (arguments); arguments and results are .param variables.
  absl::Status DecodeCall(const Statement& statement) {
    std::vector<std::vector<Register>> lists;
    const Function* function = nullptr;
    for (const Operand& operand : statement.operands) {
      if (operand.kind == Operand::Kind::kList) {
        lists.emplace_back();
        for (const Operand& element : operand.elements) {
          const auto place = FindRegister(element.name);
          if (!place.has_value()) return Invalid("arguments must be .param variables");
          lists.back().push_back(*place);
        }
      } else {
        for (const Function& each : tree_.functions) {
          if (each.name == operand.name && !each.entry) function = &each;
        }
        if (function == nullptr) return Unsupported("call of an unknown function");
        // Without results the arguments are the only list.
        if (lists.empty()) lists.emplace_back();
      }
    }
    if (lists.size() == 1) lists.emplace_back();
    if (function == nullptr || lists.size() != 2 || lists[0].size() != function->results.size() ||
        lists[1].size() != function->parameters.size()) {
      return Invalid("arguments do not match the function");
    }
    const uint32_t line = line_;
    RETURN_IF_ERROR(DecodeBody(*function, lists[1], lists[0]));
    line_ = line;
    return absl::OkStatus();
  }

  // A load or store.
  absl::Status DecodeAccess(const Statement& statement) {
    const AccessForm form = FindAccessForm(statement.opcode);
    const auto& operands = statement.operands;
    const size_t address_at = form.load ? 1 : 0;
    if (operands.size() != 2 || operands[address_at].kind != Operand::Kind::kAddress) {
      return Invalid("expected an address and a value");
    }
    const Operand& address = operands[address_at];
    const Operand& value = operands[1 - address_at];
    const bool is_vector = value.kind == Operand::Kind::kList;
    const std::vector<Operand> values = is_vector ? value.elements : std::vector<Operand>{value};
    if (form.space == "param") {
      // Arguments and results of functions are registers.
      const auto place = FindRegister(address.name);
      if (place.has_value() && IsVariable(address.name)) {
        if (is_vector || address.number != 0 || place->bits != form.bits) {
          return Unsupported("access to a part of an argument");
        }
        ASSIGN_OR_RETURN(const uint32_t slot, SlotOf(value, form.bits, Width::kExact));
        Instruction move = {Forms().at("mov.b64").run};
        move.slots = {form.load ? slot : place->slot, form.load ? place->slot : slot};
        Emit(move, 1, 2);
        return absl::OkStatus();
      }
    }
    if (form.run == nullptr) {
      return Unsupported(absl::StrCat("instruction ", std::string(statement.opcode)));
    }
    if (values.size() != static_cast<size_t>(form.elements) || is_vector != (form.elements > 1)) {
      return Invalid("the vector has another size than the instruction");
    }
    Instruction instruction{form.run};
    instruction.access = kernel_.accesses++;
    uint32_t* slot = instruction.slots.data();
    if (!form.load) RETURN_IF_ERROR(DecodeAddress(address, form, instruction, *slot++));
    for (const Operand& each : values) {
      if (form.load && !IsRegister(each)) return Invalid("the destination is not a register");
      ASSIGN_OR_RETURN(*slot++, SlotOf(each, form.bits, Width::kAtLeast));
    }
    if (form.load) RETURN_IF_ERROR(DecodeAddress(address, form, instruction, *slot));
    Emit(instruction, form.load ? form.elements : 0, form.elements + 1);
    return absl::OkStatus();
  }

  // Atomic operations have 32 bits.
  absl::Status DecodeAtomic(const Statement& statement) {
    Instruction instruction{FindAtomic(statement.opcode)};
    const auto& operands = statement.operands;
    if (instruction.run == nullptr) {
      return Unsupported(absl::StrCat("instruction ", std::string(statement.opcode)));
    }
    if (operands.size() != 3 || operands[1].kind != Operand::Kind::kAddress) {
      return Invalid("expected a destination, an address and an operand");
    }
    instruction.access = kernel_.accesses++;
    ASSIGN_OR_RETURN(instruction.slots[0], SlotOf(operands[0], 32, Width::kExact));
    RETURN_IF_ERROR(DecodeAddress(operands[1], {}, instruction, instruction.slots[1]));
    ASSIGN_OR_RETURN(instruction.slots[2], SlotOf(operands[2], 32, Width::kExact));
    Emit(instruction, 1, 3);
    return absl::OkStatus();
  }

  absl::Status DecodeAddress(const Operand& address, const AccessForm& form,
                             Instruction& instruction, uint32_t& slot) {
    instruction.offset = static_cast<int64_t>(address.number);
    Operand base;
    base.name = address.name;
    if (address.name.empty()) base.kind = Operand::Kind::kNumber;  // an absolute address
    const bool may_be_narrow = form.space == "shared";
    const auto place = FindRegister(base.name);
    const int bits = may_be_narrow && place.has_value() ? place->bits : 64;
    ASSIGN_OR_RETURN(slot, SlotOf(base, bits, Width::kExact));
    return absl::OkStatus();
  }

  // mov of a vector of registers to a register, or from one.
  absl::Status DecodePacking(const Statement& statement) {
    const auto& operands = statement.operands;
    const bool is_move = statement.opcode == "mov.b32" || statement.opcode == "mov.b64";
    if (!is_move || operands.size() != 2) return Unsupported("vector operand");
    const int bits = statement.opcode == "mov.b32" ? 32 : 64;
    const bool packs = operands[1].kind == Operand::Kind::kList;
    const std::vector<Operand>& elements = operands[packs ? 1 : 0].elements;
    if (elements.empty() || bits % elements.size() != 0) return Invalid("vector of a wrong size");
    const int each = bits / static_cast<int>(elements.size());
    Instruction instruction{packs ? FindPack(elements.size(), each)
                                  : FindUnpack(elements.size(), each)};
    if (instruction.run == nullptr) return Unsupported("vector");
    uint32_t* slot = instruction.slots.data();
    if (packs) {
      ASSIGN_OR_RETURN(*slot++, SlotOf(operands[0], bits, Width::kExact));
    }
    for (const Operand& element : elements) {
      ASSIGN_OR_RETURN(*slot++, SlotOf(element, each, Width::kExact));
    }
    if (!packs) {
      ASSIGN_OR_RETURN(*slot++, SlotOf(operands[1], bits, Width::kExact));
    }
    Emit(instruction, packs ? 1 : static_cast<int>(elements.size()),
         static_cast<int>(elements.size()) + 1);
    return absl::OkStatus();
  }

  enum class Width { kExact, kAtLeast };

  bool IsRegister(const Operand& operand) const {
    return operand.kind == Operand::Kind::kName &&
           (operand.name == "_" || FindRegister(operand.name).has_value());
  }
  // Variables in registers; the names of registers begin with %.
  static bool IsVariable(std::string_view name) { return !name.starts_with('%'); }

  std::optional<Register> FindRegister(std::string_view name) const {
    const auto& scopes = frames_.back().scopes;
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      if (const auto found = scope->Find(name); found.has_value()) return found;
    }
    return std::nullopt;
  }

  // The slot of a register, immediate or address as an operand of `bits` bits.
  absl::StatusOr<uint32_t> SlotOf(const Operand& operand, int bits, Width width) {
    if (operand.kind == Operand::Kind::kNumber) {
      const bool fits = operand.number_type == NumberType::kInteger ||
                        bits == (operand.number_type == NumberType::kFloat ? 32 : 64);
      if (!fits) return Invalid("an immediate does not fit the instruction's type");
      return slots_.OfConstant(bits == 1 ? operand.number != 0 : operand.number);
    }
    if (operand.kind != Operand::Kind::kName) return Invalid("an operand has a wrong form");
    if (operand.name == "_") return slots_.Take();  // a result that is not used
    auto place = FindRegister(operand.name);
    if (!place.has_value()) place = FindSpecialRegister(operand.name);
    if (place.has_value()) {
      if (place->bits == bits || (width == Width::kAtLeast && place->bits > bits && bits > 1)) {
        return place->slot;
      }
      return Invalid(absl::StrCat(std::string(operand.name), " has ", place->bits,
                                  " bits, the operand has ", bits));
    }
    const auto address = addresses_.find(operand.name);
    if (address == addresses_.end() || bits < 32) {
      return Unsupported(absl::StrCat("operand ", std::string(operand.name)));
    }
    return slots_.OfConstant(address->second);
  }

  // Appends an instruction that uses the first `used` slots, of which it writes `writes`, and the
  // checks of its slots. Returns its index.
  size_t Emit(const Instruction& instruction, int writes, int used = 0) {
    for (int i = writes; i < used; ++i) CheckSlot(instruction.slots[i]);
    return EmitChecked(instruction, writes, used);
  }
  void CheckSlot(uint32_t slot) {
    const auto flag = flags_.find(slot);
    if (flag != flags_.end()) Append({CheckFlag, 0, {flag->second}}, 0, 0);
  }
  size_t EmitChecked(const Instruction& instruction, int writes, int used) {
    const size_t at = Append(instruction, writes, used);
    for (int i = 0; i < writes; ++i) {
      const auto flag = flags_.find(instruction.slots[i]);
      if (flag != flags_.end()) Append({SetFlag, 1, {flag->second}}, 0, 0);
    }
    return at;
  }
  size_t Append(const Instruction& instruction, int writes, int used) {
    kernel_.code.push_back(instruction);
    kernel_.lines.push_back(line_);
    uses_.push_back({static_cast<uint8_t>(writes), static_cast<uint8_t>(used)});
    return kernel_.code.size() - 1;
  }
  void SetTarget(size_t jump, size_t target) {
    kernel_.code[jump].offset = static_cast<int64_t>(target) - static_cast<int64_t>(jump);
  }

  const SyntaxTree& tree_;
  const std::map<uint32_t, uint32_t>& flags_;
  Kernel kernel_;
  std::vector<SlotUse> uses_;  // by instruction
  SlotAllocator slots_;
  std::map<std::string_view, uint64_t> addresses_;  // addresses of parameters and shared variables
  std::deque<Frame> frames_;                        // innermost last
  uint32_t line_ = 0;
};

}  // namespace

absl::StatusOr<Kernel> DecodeKernel(const SyntaxTree& tree, const Function& entry,
                                    std::shared_ptr<const SourceText> source) {
  std::map<uint32_t, uint32_t> flags;
  Decoder decoder(tree, source, flags);
  RETURN_IF_ERROR(decoder.Decode(entry));
  const std::set<uint32_t> checked = decoder.PossiblyUndefined();
  if (checked.empty()) return decoder.Take();
  // Decoding again assigns the same slots.
  for (const uint32_t slot : checked) {
    flags[slot] = decoder.slots() + static_cast<uint32_t>(flags.size());
  }
  Decoder with_checks(tree, source, flags);
  RETURN_IF_ERROR(with_checks.Decode(entry));
  return with_checks.Take();
}

}  // namespace muster::ptx
