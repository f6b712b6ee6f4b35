// Assignment of register slots to the names of a kernel and to its constants.
#ifndef MUSTER_TESTS_GPU_PTX_REGISTERS_H_
#define MUSTER_TESTS_GPU_PTX_REGISTERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/gpu/ptx/kernel.h"
#include "tests/gpu/ptx/syntax.h"

namespace muster::ptx {

// A register, or a variable of a function that is kept in one.
struct Register {
  uint32_t slot;
  int bits;  // 1 for a predicate
};

// The register %tid.x and so on; none for other names.
std::optional<Register> FindSpecialRegister(std::string_view name);

// Slots of a kernel. A slot belongs to one register or constant only.
class SlotAllocator {
 public:
  SlotAllocator();

  uint32_t Take(uint32_t count = 1);
  // The slot that holds a constant.
  uint32_t OfConstant(uint64_t value);

  uint32_t count() const { return count_; }
  std::vector<Constant> constants() const;
  // Slots that have a value when a thread starts: constants and special registers.
  std::vector<uint32_t> defined() const;

 private:
  uint32_t count_;
  std::map<uint64_t, uint32_t> constants_;
};

// Names that a scope of a function declares.
class Scope {
 public:
  // Returns false if the type is unknown.
  bool Declare(const RegisterDeclaration& declaration, SlotAllocator& slots);
  void Declare(std::string_view name, Register place) { singles_[name] = place; }
  std::optional<Register> Find(std::string_view name) const;

 private:
  struct Range {
    Register first;
    uint32_t count;
  };
  std::map<std::string_view, Register> singles_;
  std::map<std::string_view, Range> ranges_;  // by the name without its number
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_REGISTERS_H_
