#include "coordinator/core/nodes/node_ranks.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace muster::core {

void NodeRanks::Occupy(const RankRef& rank, const std::vector<uint32_t>& slots, bool exclusive) {
  for (const uint32_t slot : slots) by_slot_.emplace(slot, rank);
  if (exclusive) exclusive_job_ = rank.job;
}

void NodeRanks::Vacate(const RankRef& rank) {
  for (auto entry = by_slot_.begin(); entry != by_slot_.end();) {
    entry = entry->second == rank ? by_slot_.erase(entry) : std::next(entry);
  }
  std::erase_if(unkillable_, [&rank](const UnkillableRank& held) { return held.rank == rank; });
  const bool is_left = std::any_of(by_slot_.begin(), by_slot_.end(), [this](const auto& entry) {
    return entry.second.job == exclusive_job_;
  });
  if (!is_left) exclusive_job_.reset();
}

std::vector<uint32_t> NodeRanks::SlotsOf(const RankRef& rank) const {
  std::vector<uint32_t> slots;
  for (const auto& [slot, holder] : by_slot_) {
    if (holder == rank) slots.push_back(slot);
  }
  return slots;
}

std::vector<std::pair<JobId, Generation>> NodeRanks::PlacedGenerations() const {
  std::set<std::pair<JobId, Generation>> placed;
  for (const auto& [slot, rank] : by_slot_) {
    if (!HasLeftover(rank)) placed.emplace(rank.job, rank.generation);
  }
  return {placed.begin(), placed.end()};
}

void NodeRanks::SetLeftovers(const JobId& job, Generation generation, std::set<uint32_t> ranks) {
  if (ranks.empty()) {
    leftovers_.erase({job, generation});
  } else {
    leftovers_[{job, generation}] = std::move(ranks);
  }
}

void NodeRanks::ClearLeftovers() {
  for (const auto& [generation, ranks] : std::exchange(leftovers_, {})) {
    for (const uint32_t rank : ranks) Vacate({generation.first, generation.second, rank});
  }
}

bool NodeRanks::HasLeftover(const RankRef& rank) const {
  const auto entry = leftovers_.find({rank.job, rank.generation});
  return entry != leftovers_.end() && entry->second.count(rank.rank) != 0;
}

std::set<uint32_t> NodeRanks::LeftoversOf(const JobId& job, Generation generation) const {
  const auto entry = leftovers_.find({job, generation});
  return entry == leftovers_.end() ? std::set<uint32_t>() : entry->second;
}

bool NodeRanks::MayHaveLeftoverOn(const std::vector<uint32_t>& slots) const {
  for (const auto& [generation, ranks] : leftovers_) {
    for (const uint32_t rank : ranks) {
      const std::vector<uint32_t> held = SlotsOf({generation.first, generation.second, rank});
      if (held.empty()) return true;  // unknown, because its generation has no record
      if (std::find_first_of(held.begin(), held.end(), slots.begin(), slots.end()) != held.end()) {
        return true;
      }
    }
  }
  return false;
}

void NodeRanks::SetUnkillable(const RankRef& rank, int64_t pid) {
  std::erase_if(unkillable_, [&rank](const UnkillableRank& held) { return held.rank == rank; });
  unkillable_.push_back({rank, pid});
  leftovers_[{rank.job, rank.generation}].insert(rank.rank);
}

const UnkillableRank* NodeRanks::FindUnkillable(uint32_t slot) const {
  const auto [first, end] = by_slot_.equal_range(slot);
  for (const UnkillableRank& held : unkillable_) {
    if (std::any_of(first, end, [&held](const auto& entry) { return entry.second == held.rank; })) {
      return &held;
    }
  }
  return nullptr;
}

std::string Describe(const UnkillableRank& held) {
  return absl::StrCat("unkillable rank ", held.rank.rank, " of ", held.rank.job.value(),
                      held.pid > 0 ? absl::StrCat(", pid ", held.pid) : "");
}

}  // namespace muster::core
