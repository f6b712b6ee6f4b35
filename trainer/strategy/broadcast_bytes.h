// Broadcasts of byte strings whose size only the root knows.
#ifndef MUSTER_TRAINER_STRATEGY_BROADCAST_BYTES_H_
#define MUSTER_TRAINER_STRATEGY_BROADCAST_BYTES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "collectives/communicator.h"
#include "common/status.h"

namespace muster::train {

// Collective. Replaces `bytes`, a string or vector of bytes, by that of rank `root`. Returns the
// communicator's errors.
template <typename Bytes>
absl::Status BroadcastBytes(collectives::Communicator& world, uint32_t root, Bytes& bytes) {
  auto size = static_cast<int64_t>(bytes.size());
  RETURN_IF_ERROR(world.Broadcast(&size, 1, collectives::DataType::kInt64, root)->Wait());
  bytes.resize(static_cast<size_t>(size));
  return world.Broadcast(bytes.data(), bytes.size(), collectives::DataType::kUint8, root)->Wait();
}

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_BROADCAST_BYTES_H_
