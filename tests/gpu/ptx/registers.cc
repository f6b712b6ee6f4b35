#include "tests/gpu/ptx/registers.h"

#include <charconv>

#include "tests/gpu/ptx/thread.h"
#include "tests/gpu/ptx/type_size.h"

namespace muster::ptx {

std::optional<Register> FindSpecialRegister(std::string_view name) {
  if (name.size() < 3 || name[name.size() - 2] != '.') return std::nullopt;
  const char axis = name.back();
  if (axis < 'x' || axis > 'z') return std::nullopt;
  name.remove_suffix(2);
  const uint32_t at = static_cast<uint32_t>(axis - 'x');
  if (name == "%tid") return Register{kTidX + at, 32};
  if (name == "%ntid") return Register{kNtidX + at, 32};
  if (name == "%ctaid") return Register{kCtaidX + at, 32};
  if (name == "%nctaid") return Register{kNctaidX + at, 32};
  return std::nullopt;
}

SlotAllocator::SlotAllocator() : count_(kSpecialRegisters) {}

uint32_t SlotAllocator::Take(uint32_t count) {
  const uint32_t first = count_;
  count_ += count;
  return first;
}

uint32_t SlotAllocator::OfConstant(uint64_t value) {
  const auto [found, added] = constants_.try_emplace(value, count_);
  if (added) ++count_;
  return found->second;
}

std::vector<Constant> SlotAllocator::constants() const {
  std::vector<Constant> result;
  for (const auto& [value, slot] : constants_) result.push_back({slot, value});
  return result;
}

std::vector<uint32_t> SlotAllocator::defined() const {
  std::vector<uint32_t> result;
  for (uint32_t slot = 0; slot < kSpecialRegisters; ++slot) result.push_back(slot);
  for (const auto& [value, slot] : constants_) result.push_back(slot);
  return result;
}

bool Scope::Declare(const RegisterDeclaration& declaration, SlotAllocator& slots) {
  const int bits =
      declaration.type == "pred" ? 1 : 8 * static_cast<int>(TypeBytes(declaration.type));
  if (bits == 0) return false;
  if (declaration.count == 0) {
    singles_[declaration.name] = {slots.Take(), bits};
  } else {
    ranges_[declaration.name] = {{slots.Take(declaration.count), bits}, declaration.count};
  }
  return true;
}

std::optional<Register> Scope::Find(std::string_view name) const {
  const auto single = singles_.find(name);
  if (single != singles_.end()) return single->second;
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  const auto range = ranges_.find(name.substr(0, digits));
  if (range == ranges_.end() || digits == name.size()) return std::nullopt;
  uint32_t number = 0;
  std::from_chars(name.data() + digits, name.data() + name.size(), number);
  if (number >= range->second.count) return std::nullopt;
  return Register{range->second.first.slot + number, range->second.first.bits};
}

}  // namespace muster::ptx
