#include "worker/collectives/nccl/testing/fake_split.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace fake_nccl {
namespace {

// -> whether all ranks have got that far.
bool Await(NcclComm comm, std::atomic<uint32_t> RankState::*counter, uint32_t least) {
  std::vector<int> missing;
  for (int peer = 0; peer < comm->size; ++peer) {
    if ((comm->state_of(peer).*counter).load() < least) missing.push_back(peer);
  }
  if (!missing.empty()) comm->LookFor(missing);
  return missing.empty();
}

NcclComm MakePart(NcclComm comm, uint32_t split, int color) {
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int peer = 0; peer < comm->size; ++peer) {
    const RankState& state = comm->state_of(peer);
    if (state.color == color) members.emplace_back(state.key, peer);
  }
  std::sort(members.begin(), members.end());
  const auto own = std::find_if(
      members.begin(), members.end(),
      [comm](const std::pair<int, int>& member) { return member.second == comm->rank; });
  auto* const part =
      new NcclCommOpaque(static_cast<int>(members.size()), static_cast<int>(own - members.begin()));
  part->paths = {comm->paths.front() + "-" + std::to_string(split) + "-" + std::to_string(color)};
  part->is_part = true;
  part->state = kNcclInProgress;
  part->pending_symbol = "ncclCommSplit";
  part->pending = [part] {
    if (part->memory == nullptr) part->Enter();
    return part->Meet();
  };
  return part;
}

}  // namespace

std::function<bool()> MakeSplit(NcclComm comm, int color, int key, NcclComm* part) {
  const uint32_t split = comm->state_of(comm->rank).splits.load() + 1;
  return [=] {
    RankState& own = comm->state_of(comm->rank);
    if (own.splits.load() < split) {
      // What was said for the one before may still be read.
      if (!Await(comm, &RankState::splits_read, split - 1)) return false;
      own.color = color;
      own.key = key;
      own.splits.store(split);
    }
    if (!Await(comm, &RankState::splits, split)) return false;
    if (color != kNcclSplitNoColor) *part = MakePart(comm, split, color);
    own.splits_read.store(split);
    return true;
  };
}

}  // namespace fake_nccl
