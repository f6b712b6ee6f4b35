#include "coordinator/core/rendezvous/barriers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/limits.h"

namespace muster::core {
namespace {

v1::BarrierId MakeId(const std::string& group, uint64_t sequence) {
  v1::BarrierId id;
  id.set_group(group);
  id.set_sequence(sequence);
  return id;
}

}  // namespace

absl::StatusOr<BarrierTable::Outcome> BarrierTable::Arrive(const v1::BarrierId& barrier,
                                                           absl::Span<const uint32_t> ranks,
                                                           SteadyTime now) {
  if (barrier.sequence() == 0) {
    return absl::InvalidArgumentError("barrier sequence is 0; sequences start at 1");
  }
  if (barrier.group().size() > limits::kKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat("barrier group name is ", barrier.group().size(),
                                                   " bytes long; the limit is ",
                                                   limits::kKeyBytes));
  }
  const auto released = released_.find(barrier.group());
  if (released != released_.end() && barrier.sequence() <= released->second) {
    return Outcome{true, {}};
  }
  const Key key(barrier.group(), barrier.sequence());
  auto entry = open_.find(key);
  if (entry == open_.end()) {
    if (open_.size() >= limits::kBarriersPerGeneration ||
        (released == released_.end() && released_.size() >= limits::kBarriersPerGeneration)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("too many open barriers or barrier groups; the limit is ",
                       limits::kBarriersPerGeneration, " of each per generation"));
    }
    entry = open_.emplace(key, Arrivals{{}, now}).first;
  }
  entry->second.ranks.insert(ranks.begin(), ranks.end());
  if (entry->second.ranks.size() < world_size_) return Outcome{};
  last_wait_ = now - entry->second.since;
  return Outcome{false, MarkPassed(barrier)};
}

std::vector<v1::BarrierId> BarrierTable::MarkPassed(const v1::BarrierId& barrier) {
  std::vector<v1::BarrierId> now_released;
  const auto known = released_.find(barrier.group());
  if (known == released_.end() && released_.size() >= limits::kBarriersPerGeneration) {
    return now_released;
  }
  uint64_t& released = released_[barrier.group()];
  released = std::max(released, barrier.sequence());
  auto entry = open_.lower_bound(Key(barrier.group(), 0));
  while (entry != open_.end() && entry->first.first == barrier.group() &&
         entry->first.second <= released) {
    now_released.push_back(MakeId(entry->first.first, entry->first.second));
    entry = open_.erase(entry);
  }
  return now_released;
}

void BarrierTable::Abort(const v1::BarrierId& barrier) {
  open_.erase(Key(barrier.group(), barrier.sequence()));
}

std::vector<BarrierTable::Open> BarrierTable::ListOpen() const {
  std::vector<Open> result;
  for (const auto& [key, arrivals] : open_) {
    Open& open = result.emplace_back();
    open.barrier = MakeId(key.first, key.second);
    open.since = arrivals.since;
    open.missing = world_size_ - static_cast<uint32_t>(arrivals.ranks.size());
  }
  return result;
}

std::vector<uint32_t> BarrierTable::Missing(const v1::BarrierId& barrier) const {
  std::vector<uint32_t> missing;
  const auto entry = open_.find(Key(barrier.group(), barrier.sequence()));
  if (entry == open_.end()) return missing;
  for (uint32_t rank = 0; rank < world_size_; ++rank) {
    if (entry->second.ranks.count(rank) == 0) missing.push_back(rank);
  }
  return missing;
}

}  // namespace muster::core
