// The thread that the interpreter executes.
#ifndef MUSTER_TESTS_GPU_PTX_THREAD_H_
#define MUSTER_TESTS_GPU_PTX_THREAD_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "tests/gpu/ptx/instruction.h"
#include "tests/gpu/ptx/shadow.h"

namespace muster::ptx {

class LaunchMemory;

// Registers that hold thread and block coordinates, in slots of their own.
enum SpecialRegister : uint32_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kSpecialRegisters,
};

enum class Stop { kNone, kBarrier, kExit, kFault };

class Thread {
 public:
  explicit Thread(LaunchMemory& memory) : memory(memory) {}

  template <typename T>
  T Get(uint32_t slot) const {
    T value;
    std::memcpy(&value, &registers[slot], sizeof(T));
    return value;
  }
  // Extends integers to the slot's 64 bits, by their sign if they have one, because loads and
  // conversions may write to registers that are wider than the value.
  template <typename T>
  void Set(uint32_t slot, T value) {
    if constexpr (std::is_same_v<T, float>) {
      registers[slot] = std::bit_cast<uint32_t>(value);
    } else if constexpr (std::is_same_v<T, double>) {
      registers[slot] = std::bit_cast<uint64_t>(value);
    } else if constexpr (std::is_integral_v<T>) {
      registers[slot] = static_cast<uint64_t>(value);
    } else {
      registers[slot] = value.bits;  // a 16-bit float
    }
  }

  // Stop the thread at an instruction.
  const Instruction* StopAt(const Instruction& instruction, Stop reason) {
    at = &instruction;
    stop = reason;
    return nullptr;
  }
  const Instruction* Fail(const Instruction& instruction, absl::StatusCode code,
                          const std::string& message) {
    fault = absl::Status(code, message);
    return StopAt(instruction, Stop::kFault);
  }

  uint64_t* registers = nullptr;
  Accessor accessor = {};
  LaunchMemory& memory;
  // Why and where the thread stopped.
  Stop stop = Stop::kNone;
  const Instruction* at = nullptr;
  absl::Status fault;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_THREAD_H_
