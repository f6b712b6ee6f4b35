// A rank's view of its peers through the segment: their progress and liveness.
#ifndef MUSTER_COLLECTIVES_SHM_SHM_PEERS_H_
#define MUSTER_COLLECTIVES_SHM_SHM_PEERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/shm/shm_segment.h"

namespace muster::collectives {

// Step and WaitForAll are called by one thread at a time, the other functions by any thread.
class ShmPeers {
 public:
  // Waits end with the status of `interrupted` as soon as it is not OK.
  ShmPeers(std::shared_ptr<const ShmSegment> segment, std::string group, uint32_t rank,
           std::vector<uint32_t> members, std::function<absl::Status()> interrupted);

  // Announces that this rank has completed another step.
  void Step();

  // Waits until every rank has completed as many steps as this one. UNAVAILABLE with the lost peer;
  // DEADLINE_EXCEEDED names the ranks that have not arrived.
  absl::Status WaitForAll(absl::Duration timeout);

  // Waits until `word`, which `peer` advances, reaches `target`.
  absl::Status WaitForWord(FutexWord* word, uint32_t target, uint32_t peer, absl::Duration timeout);

  // Announces that this rank no longer takes part: after the loss of `blamed`, a job rank (GiveUp),
  // or in normal operation (Leave).
  void GiveUp(uint32_t blamed);
  void Leave();

 private:
  // Returns OK while `peer` may still take the step.
  absl::Status Health(uint32_t peer) const;
  void Publish(RankControl::State state);

  const std::shared_ptr<const ShmSegment> segment_;
  const std::string group_;
  const uint32_t rank_;
  const std::vector<uint32_t> members_;
  const std::function<absl::Status()> interrupted_;
  uint32_t step_ = 0;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SHM_SHM_PEERS_H_
