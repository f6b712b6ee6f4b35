// The connection of a worker of another node to the store, over which the store asks which ranks of
// that node its clients are.
//
// The worker sends kIntroduction. The store then sends ports of clients that have connected from
// the worker's address, 16 bits each, and the worker answers for those whose rank it knows.
#ifndef MUSTER_WORKER_C10D_STORE_WORKER_LINK_H_
#define MUSTER_WORKER_C10D_STORE_WORKER_LINK_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::c10d_store {

// Types of request that PyTorch does not have.
inline constexpr uint8_t kIntroduceType = 240;
inline constexpr uint8_t kNameRankType = 241;

// The greeting of PyTorch 2 and a request of kIntroduceType.
inline constexpr std::string_view kIntroduction("\0\xCE\xF7\x85\x3C\xF0", 6);

// The answer for a client; see NameRank.
std::string EncodeNameRank(uint16_t port, uint32_t rank);

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_WORKER_LINK_H_
