// Maps connections of the store to ranks.
#ifndef MUSTER_WORKER_C10D_STORE_ROSTER_H_
#define MUSTER_WORKER_C10D_STORE_ROSTER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "worker/c10d_store/key_store.h"

namespace muster::c10d_store {

// The rank that a key of PyTorch's default process group belongs to: Gloo's keys with the addresses
// of one rank, such as "/default_pg/0//cpu//0/2" (PyTorch 2) and
// "//worker/attempt_0/default_pg/0/0/rank_2" (PyTorch 1.13). Only that rank sets them.
std::optional<uint32_t> RankInKey(std::string_view key);

class Roster {
 public:
  explicit Roster(uint32_t world_size) : world_size_(world_size) {}

  uint32_t world_size() const { return world_size_; }

  // `peer`: address of the client, for texts.
  ConnectionId Add(std::string peer);
  void Close(ConnectionId connection);
  // Ignores a rank that the job does not have.
  void SetRank(ConnectionId connection, uint32_t rank);

  // Also of closed connections.
  std::optional<uint32_t> RankOf(ConnectionId connection) const;
  // "rank 3", or "the process at 10.0.0.2:4711" while its rank is unknown.
  std::string NameOf(ConnectionId connection) const;
  // Ranks that have connected so far.
  const std::set<uint32_t>& connected() const { return connected_; }
  // Open connections of unknown rank.
  std::vector<ConnectionId> Unknown() const;
  bool HasUnknown() const { return unknown_ > 0; }

 private:
  const uint32_t world_size_;
  std::vector<std::optional<uint32_t>> ranks_;  // by connection
  std::map<ConnectionId, std::string> peers_;   // of open connections
  std::set<uint32_t> connected_;
  size_t unknown_ = 0;  // number of open connections of unknown rank
};

// "rank 3", "ranks 0, 2 and 5", "ranks 0-3 and 7"; names at most `most` ranks or ranges and counts
// the others.
std::string RanksText(const std::set<uint32_t>& ranks, size_t most = 8);

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_ROSTER_H_
