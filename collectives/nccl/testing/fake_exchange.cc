#include "collectives/nccl/testing/fake_exchange.h"

#include <utility>
#include <vector>

namespace fake_nccl {
namespace {

// Returns whether all ranks have reached `least`.
bool Await(NcclComm comm, std::atomic<uint32_t> RankState::*counter, uint32_t least) {
  std::vector<int> missing;
  for (int peer = 0; peer < comm->size; ++peer) {
    if ((comm->state_of(peer).*counter).load() < least) missing.push_back(peer);
  }
  if (!missing.empty()) comm->CheckAlive(missing);
  return missing.empty();
}

}  // namespace

std::function<bool()> MakeExchange(NcclComm comm, ExchangeData data, std::function<void()> read) {
  const uint32_t exchange = comm->state_of(comm->rank).exchanges.load() + 1;
  return [=] {
    RankState& own = comm->state_of(comm->rank);
    if (own.exchanges.load() < exchange) {
      // Data of the previous exchange may still be read.
      if (!Await(comm, &RankState::exchanges_read, exchange - 1)) return false;
      own.data = data;
      own.exchanges.store(exchange);
    }
    if (!Await(comm, &RankState::exchanges, exchange)) return false;
    read();
    own.exchanges_read.store(exchange);
    return true;
  };
}

}  // namespace fake_nccl
