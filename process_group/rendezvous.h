// A rank's side of the meeting that rank 0 holds.
#ifndef MUSTER_PROCESS_GROUP_RENDEZVOUS_H_
#define MUSTER_PROCESS_GROUP_RENDEZVOUS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "common/http/address.h"
#include "process_group/meeting.h"

namespace muster {

// Thread-safe. UNAVAILABLE from every call once a rank, or rank 0 itself, was lost.
class Rendezvous : public collectives::KeyStore {
 public:
  // Waits for every rank -> by rank, the number of its node. `lost` is called at most once, by
  // another thread, and not after the destructor, with whom was lost (kPeerRankPayload). Call it
  // once. DEADLINE_EXCEEDED names the missing, UNAVAILABLE who was lost; else as Meeting::Join.
  virtual absl::StatusOr<std::vector<uint32_t>> Join(
      absl::Duration timeout, std::function<void(const absl::Status&)> lost) = 0;
};

// Of rank 0: it serves the others at `address`, a port that is free or that a launcher keeps for it
// by a socket that does not listen. UNAVAILABLE, ALREADY_EXISTS: cannot be listened on.
absl::StatusOr<std::unique_ptr<Rendezvous>> HostRendezvous(const Address& address,
                                                           const MeetingMember& member);

// Of another rank; rank 0 may come later.
std::unique_ptr<Rendezvous> ReachRendezvous(const Address& address, const MeetingMember& member);

}  // namespace muster

#endif  // MUSTER_PROCESS_GROUP_RENDEZVOUS_H_
