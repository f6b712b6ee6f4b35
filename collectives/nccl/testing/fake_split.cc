#include "collectives/nccl/testing/fake_split.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "collectives/nccl/testing/fake_exchange.h"

namespace fake_nccl {
namespace {

NcclComm MakePart(NcclComm comm, uint32_t split, int color) {
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int peer = 0; peer < comm->size; ++peer) {
    const ExchangeData& data = comm->state_of(peer).data;
    if (data.color == color) members.emplace_back(data.key, peer);
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
    if (part->memory == nullptr) part->Join();
    return part->PollRendezvous();
  };
  return part;
}

}  // namespace

std::function<bool()> MakeSplit(NcclComm comm, int color, int key, NcclComm* part) {
  return MakeExchange(comm, {color, key, 0}, [=] {
    const uint32_t exchange = comm->state_of(comm->rank).exchanges.load();
    if (color != kNcclSplitNoColor) *part = MakePart(comm, exchange, color);
  });
}

}  // namespace fake_nccl
