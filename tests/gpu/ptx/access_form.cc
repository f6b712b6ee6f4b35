#include "tests/gpu/ptx/access_form.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/gpu/ptx/form.h"
#include "tests/gpu/ptx/launch_memory.h"
#include "tests/gpu/ptx/thread.h"
#include "tests/gpu/ptx/type_size.h"

namespace muster::ptx {
namespace {

enum class Space { kGlobal, kShared, kParameters, kGeneric };

template <Space kSpace, Access kAccess, size_t kBytes>
std::byte* Find(const Instruction& instruction, Thread& thread, uint64_t address) {
  LaunchMemory& memory = thread.memory;
  if constexpr (kSpace == Space::kGlobal) {
    return memory.Global<kAccess, kBytes>(instruction, thread, address);
  } else if constexpr (kSpace == Space::kShared) {
    // Addresses of shared memory may be in 32-bit registers.
    return memory.Shared<kAccess, kBytes>(instruction, thread, static_cast<uint32_t>(address));
  } else if constexpr (kSpace == Space::kParameters) {
    return memory.Parameters<kBytes>(instruction, thread, address);
  } else {
    return memory.Generic<kAccess, kBytes>(instruction, thread, address);
  }
}

template <Space kSpace, typename T, int kElements>
const Instruction* Load(const Instruction& instruction, Thread& thread) {
  const uint64_t address = thread.Get<uint64_t>(instruction.slots[kElements]) +
                           static_cast<uint64_t>(instruction.offset);
  const std::byte* const from =
      Find<kSpace, Access::kRead, kElements * sizeof(T)>(instruction, thread, address);
  if (from == nullptr) return nullptr;
  T values[kElements];
  std::memcpy(values, from, sizeof(values));
  for (int i = 0; i < kElements; ++i) thread.Set(instruction.slots[i], values[i]);
  return &instruction + 1;
}

template <Space kSpace, typename T, int kElements>
const Instruction* Store(const Instruction& instruction, Thread& thread) {
  const uint64_t address =
      thread.Get<uint64_t>(instruction.slots[0]) + static_cast<uint64_t>(instruction.offset);
  std::byte* const to =
      Find<kSpace, Access::kWrite, kElements * sizeof(T)>(instruction, thread, address);
  if (to == nullptr) return nullptr;
  T values[kElements];
  for (int i = 0; i < kElements; ++i) values[i] = thread.Get<T>(instruction.slots[1 + i]);
  std::memcpy(to, values, sizeof(values));
  return &instruction + 1;
}

template <Space kSpace, typename T, int kElements>
Handler HandlerOf(bool load) {
  if (load) return Load<kSpace, T, kElements>;
  if constexpr (kSpace == Space::kParameters) return nullptr;
  return Store<kSpace, T, kElements>;
}

template <Space kSpace, typename T>
Handler HandlerOf(const AccessForm& form) {
  if (form.elements == 1) return HandlerOf<kSpace, T, 1>(form.load);
  if (form.elements == 2) return HandlerOf<kSpace, T, 2>(form.load);
  if constexpr (sizeof(T) <= 4) {
    if (form.elements == 4) return HandlerOf<kSpace, T, 4>(form.load);
  }
  return nullptr;
}

template <Space kSpace>
Handler HandlerOf(const AccessForm& form, bool is_signed) {
  switch (form.bits) {
    case 8:
      return is_signed ? HandlerOf<kSpace, int8_t>(form) : HandlerOf<kSpace, uint8_t>(form);
    case 16:
      return is_signed ? HandlerOf<kSpace, int16_t>(form) : HandlerOf<kSpace, uint16_t>(form);
    case 32:
      return is_signed ? HandlerOf<kSpace, int32_t>(form) : HandlerOf<kSpace, uint32_t>(form);
    case 64:
      return HandlerOf<kSpace, uint64_t>(form);
    default:
      return nullptr;
  }
}

Handler HandlerOf(const AccessForm& form, bool is_signed) {
  if (form.space == "global") return HandlerOf<Space::kGlobal>(form, is_signed);
  if (form.space == "shared") return HandlerOf<Space::kShared>(form, is_signed);
  if (form.space == "param") return HandlerOf<Space::kParameters>(form, is_signed);
  return HandlerOf<Space::kGeneric>(form, is_signed);
}

// Modifiers that do not change the value: hints for caches, and volatile.
bool IsHint(std::string_view modifier) {
  for (const std::string_view hint : {"volatile", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt"}) {
    if (modifier == hint) return true;
  }
  return modifier.starts_with("L1::") || modifier.starts_with("L2::");
}

uint32_t Add(uint32_t old, uint32_t operand) { return old + operand; }
uint32_t IncrementUpTo(uint32_t old, uint32_t limit) { return old >= limit ? 0 : old + 1; }

template <uint32_t (*kFunction)(uint32_t old, uint32_t operand)>
const Instruction* Atomic(const Instruction& instruction, Thread& thread) {
  const uint64_t address =
      thread.Get<uint64_t>(instruction.slots[1]) + static_cast<uint64_t>(instruction.offset);
  std::byte* const at =
      Find<Space::kGlobal, Access::kAtomic, sizeof(uint32_t)>(instruction, thread, address);
  if (at == nullptr) return nullptr;
  thread.memory.order().Atomic(address, thread.accessor);
  uint32_t value;
  std::memcpy(&value, at, sizeof(value));
  const uint32_t changed = kFunction(value, thread.Get<uint32_t>(instruction.slots[2]));
  std::memcpy(at, &changed, sizeof(changed));
  thread.Set(instruction.slots[0], value);
  return &instruction + 1;
}

uint64_t SameAddress(uint64_t address) { return address; }

template <uint64_t kWindow>
uint64_t IntoWindow(uint64_t address) {
  return address | kWindow << kWindowShift;
}
uint64_t OutOfWindow(uint64_t address) { return address & ((uint64_t{1} << kWindowShift) - 1); }

}  // namespace

void AddAddressForms(FormTable& forms) {
  forms["cvta.global.u64"] = FormOf<&SameAddress>();
  forms["cvta.to.global.u64"] = FormOf<&SameAddress>();
  forms["cvta.shared.u64"] = FormOf<&IntoWindow<kSharedWindow>>();
  forms["cvta.to.shared.u64"] = FormOf<&OutOfWindow>();
  forms["cvta.param.u64"] = FormOf<&IntoWindow<kParameterWindow>>();
  forms["cvta.to.param.u64"] = FormOf<&OutOfWindow>();
}

Handler FindAtomic(std::string_view opcode) {
  if (opcode == "atom.global.inc.u32") return Atomic<IncrementUpTo>;
  if (opcode == "atom.global.add.u32") return Atomic<Add>;
  return nullptr;
}

const Instruction* Fence(const Instruction& instruction, Thread& thread) {
  thread.memory.order().Fence(thread.accessor);
  return &instruction + 1;
}

AccessForm FindAccessForm(std::string_view opcode) {
  AccessForm form;
  form.load = opcode.starts_with("ld.");
  opcode.remove_prefix(3);
  bool is_signed = false;
  while (!opcode.empty()) {
    const std::string_view modifier = opcode.substr(0, opcode.find('.'));
    opcode.remove_prefix(std::min(opcode.size(), modifier.size() + 1));
    if (modifier == "global" || modifier == "shared" || modifier == "param") {
      form.space = modifier;
    } else if (modifier == "v2" || modifier == "v4") {
      form.elements = modifier[1] - '0';
    } else if (TypeBytes(modifier) != 0 && opcode.empty()) {
      form.bits = 8 * static_cast<int>(TypeBytes(modifier));
      is_signed = modifier[0] == 's';
    } else if (!IsHint(modifier)) {
      return form;
    }
  }
  form.run = HandlerOf(form, is_signed);
  return form;
}

}  // namespace muster::ptx
