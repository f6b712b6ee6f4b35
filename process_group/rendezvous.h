// A rank's interface to the rendezvous, which rank 0 serves.
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

namespace muster {

struct ProcessGroupMember {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::string run;   // equal for all ranks of one start of the program
  std::string host;  // equal for ranks that share memory; empty: shares memory with no other rank
};

// Key store and membership of a process group. Thread-safe. Every call returns UNAVAILABLE once a
// rank, including rank 0, was lost.
class Rendezvous : public collectives::KeyStore {
 public:
  // Waits for all ranks and returns the node number of each rank. Called once. When a rank is lost,
  // `lost` is called on another thread with the rank (kPeerRankPayload), at most once and not after
  // the destructor. DEADLINE_EXCEEDED names the missing ranks, UNAVAILABLE the lost one;
  // INVALID_ARGUMENT, ALREADY_EXISTS and FAILED_PRECONDITION as in process_group.proto.
  virtual absl::StatusOr<std::vector<uint32_t>> Join(
      absl::Duration timeout, std::function<void(const absl::Status&)> lost) = 0;
};

// Creates rank 0's rendezvous, which serves the other ranks at `address`, whose port is free or
// held for it by a launcher (common/network/held_port.h). UNAVAILABLE, ALREADY_EXISTS: it cannot
// listen there.
absl::StatusOr<std::unique_ptr<Rendezvous>> HostRendezvous(const Address& address,
                                                           const ProcessGroupMember& member);

// Creates the rendezvous of a rank other than 0; rank 0 may start later.
std::unique_ptr<Rendezvous> ReachRendezvous(const Address& address,
                                            const ProcessGroupMember& member);

}  // namespace muster

#endif  // MUSTER_PROCESS_GROUP_RENDEZVOUS_H_
