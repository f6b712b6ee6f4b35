#include "worker/c10d_store/worker_link.h"

namespace muster::c10d_store {

std::string EncodeNameRank(uint16_t port, uint32_t rank) {
  std::string bytes(1, static_cast<char>(kNameRankType));
  bytes.append(reinterpret_cast<const char*>(&port), sizeof(port));
  bytes.append(reinterpret_cast<const char*>(&rank), sizeof(rank));
  return bytes;
}

}  // namespace muster::c10d_store
