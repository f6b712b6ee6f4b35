#include "tests/gpu/ptx/block_order.h"

#include <algorithm>

#include "tests/gpu/ptx/shadow.h"

namespace muster::ptx {

void BlockOrder::BeginBlock(uint64_t begin) {
  for (const uint64_t address : current_) {
    for (auto release = releases_[address].rbegin();
         release != releases_[address].rend() && release->block_end == ~uint64_t{0}; ++release) {
      release->block_end = begin;
    }
  }
  current_.clear();
  fences_.clear();
  pending_.clear();
  acquired_.clear();
}

void BlockOrder::Fence(const Accessor& accessor) {
  const uint64_t thread = accessor.self & kThreadMask;
  if (fences_.size() <= thread) fences_.resize(thread + 1);
  fences_[thread] = accessor.phase_begin;
  const auto own = [&](const Acquire& each) { return (each.self & kThreadMask) == thread; };
  for (Acquire each : pending_) {
    if (!own(each)) continue;
    each.self = accessor.self;
    acquired_.push_back(each);
  }
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), own), pending_.end());
}

void BlockOrder::Atomic(uint64_t address, const Accessor& accessor) {
  std::vector<Release>& releases = releases_[address];
  pending_.push_back({address, releases.size(), accessor.self});
  releases.push_back({accessor.block_begin, ~uint64_t{0}, accessor.phase_begin,
                      accessor.self & kThreadMask, fences_});
  current_.push_back(address);
}

bool BlockOrder::Release::Publishes(uint64_t stamp) const {
  const uint64_t writer = stamp & kThreadMask;
  const uint64_t phase = stamp >> 12 << 12;
  const auto fence_of = [&](uint64_t each) { return each < fences.size() ? fences[each] : 0; };
  const bool before = phase < phase_begin || writer == thread;
  return before && (fence_of(writer) >= phase || fence_of(thread) > phase);
}

bool BlockOrder::IsOrdered(uint64_t stamp, const Accessor& accessor) const {
  for (const Acquire& acquire : acquired_) {
    const bool own = ((acquire.self ^ accessor.self) & kThreadMask) == 0;
    if (!own && acquire.self >= accessor.phase_begin) continue;
    const std::vector<Release>& releases = releases_.at(acquire.address);
    // The last release by a block that began before the access.
    auto release = std::upper_bound(
        releases.begin(), releases.begin() + static_cast<ptrdiff_t>(acquire.count), stamp,
        [](uint64_t value, const Release& each) { return value < each.block_begin; });
    while (release != releases.begin() && stamp < (--release)->block_end) {
      if (release->Publishes(stamp)) return true;
    }
  }
  return false;
}

}  // namespace muster::ptx
