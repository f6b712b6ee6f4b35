#include "tests/gpu/ptx/definedness.h"

#include <cstddef>

#include "tests/gpu/ptx/control.h"

namespace muster::ptx {
namespace {

// A set of slots.
class SlotSet {
 public:
  SlotSet(uint32_t slots, bool all) : words_((slots + 63) / 64, all ? ~uint64_t{0} : 0) {}
  bool Has(uint32_t slot) const { return (words_[slot / 64] >> slot % 64 & 1) != 0; }
  void Add(uint32_t slot) { words_[slot / 64] |= uint64_t{1} << slot % 64; }
  // Returns whether this removed slots.
  bool Intersect(const SlotSet& other) {
    uint64_t removed = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      removed |= words_[i] & ~other.words_[i];
      words_[i] &= other.words_[i];
    }
    return removed != 0;
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace

std::set<uint32_t> FindPossiblyUndefined(const std::vector<Instruction>& code,
                                         const std::vector<SlotUse>& uses, uint32_t slots,
                                         const std::vector<uint32_t>& defined) {
  // Basic blocks begin at targets of jumps and behind instructions that end the flow.
  std::vector<bool> leads(code.size() + 1);
  leads[0] = true;
  for (size_t i = 0; i < code.size(); ++i) {
    if (IsJump(code[i].run)) leads[i + code[i].offset] = leads[i + 1] = true;
    if (!HasNext(code[i].run)) leads[i + 1] = true;
  }
  std::vector<size_t> begins;
  std::vector<size_t> block_of(code.size() + 1);
  for (size_t i = 0; i < code.size(); ++i) {
    if (leads[i]) begins.push_back(i);
    block_of[i] = begins.size() - 1;
  }
  begins.push_back(code.size());

  // The slots that every path to a block defines: the largest solution, found by removing.
  std::vector<SlotSet> at_entry(begins.size() - 1, SlotSet(slots, /*all=*/true));
  at_entry[0] = SlotSet(slots, /*all=*/false);
  for (const uint32_t slot : defined) at_entry[0].Add(slot);
  const auto define = [&](size_t i, SlotSet& set) {
    for (int k = 0; k < uses[i].writes; ++k) set.Add(code[i].slots[k]);
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t block = 0; block + 1 < begins.size(); ++block) {
      SlotSet set = at_entry[block];
      for (size_t i = begins[block]; i < begins[block + 1]; ++i) define(i, set);
      const size_t last = begins[block + 1] - 1;
      if (IsJump(code[last].run)) {
        changed |= at_entry[block_of[last + code[last].offset]].Intersect(set);
      }
      if (HasNext(code[last].run) && last + 1 < code.size()) {
        changed |= at_entry[block_of[last + 1]].Intersect(set);
      }
    }
  }

  std::set<uint32_t> undefined;
  for (size_t block = 0; block + 1 < begins.size(); ++block) {
    SlotSet set = at_entry[block];
    for (size_t i = begins[block]; i < begins[block + 1]; ++i) {
      for (int k = uses[i].writes; k < uses[i].slots; ++k) {
        if (!set.Has(code[i].slots[k])) undefined.insert(code[i].slots[k]);
      }
      define(i, set);
    }
  }
  return undefined;
}

}  // namespace muster::ptx
