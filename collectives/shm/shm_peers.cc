#include "collectives/shm/shm_peers.h"

#include <optional>
#include <utility>

#include "collectives/lane.h"
#include "collectives/peer_status.h"
#include "collectives/spin.h"
#include "common/status.h"
#include "common/time/deadline.h"

namespace muster::collectives {
namespace {

// Interval at which a sleeper checks whether the peers are alive; nothing wakes it when one is
// killed.
constexpr absl::Duration kHealthInterval = absl::Milliseconds(50);

}  // namespace

ShmPeers::ShmPeers(std::shared_ptr<const ShmSegment> segment, std::string group, uint32_t rank,
                   std::vector<uint32_t> members, std::function<absl::Status()> interrupted)
    : segment_(std::move(segment)),
      group_(std::move(group)),
      rank_(rank),
      members_(std::move(members)),
      interrupted_(std::move(interrupted)) {
  segment_->control(rank_).state.store(RankControl::kPresent);
}

void ShmPeers::Step() { segment_->control(rank_).progress.Advance(++step_); }

absl::Status ShmPeers::WaitForAll(absl::Duration timeout) {
  std::optional<Deadline> deadline;  // set on first use
  for (uint32_t i = 0; i < members_.size(); ++i) {
    FutexWord& word = segment_->control(i).progress;
    if (SpinUntil([&] { return word.Reached(step_); }, kSpinTime)) continue;
    if (!deadline.has_value()) deadline.emplace(timeout);
    for (;;) {
      const uint32_t seen = word.value();
      if (word.Reached(step_)) break;
      RETURN_IF_ERROR(interrupted_());
      std::vector<uint32_t> missing;
      for (uint32_t k = 0; k < members_.size(); ++k) {
        if (segment_->control(k).progress.Reached(step_)) continue;
        absl::Status health = Health(k);
        // The peer may have taken its last step just before.
        if (!health.ok() && !segment_->control(k).progress.Reached(step_)) return health;
        missing.push_back(members_[k]);
      }
      if (deadline->passed() && !missing.empty()) return PeersMissing(group_, missing, timeout);
      word.Sleep(seen, kHealthInterval);
    }
  }
  return absl::OkStatus();
}

absl::Status ShmPeers::WaitForWord(FutexWord* word, uint32_t target, uint32_t peer,
                                   absl::Duration timeout) {
  if (SpinUntil([&] { return word->Reached(target); }, kSpinTime)) return absl::OkStatus();
  const Deadline deadline(timeout);
  for (;;) {
    const uint32_t seen = word->value();
    if (word->Reached(target)) return absl::OkStatus();
    RETURN_IF_ERROR(interrupted_());
    absl::Status health = Health(peer);
    if (!health.ok() && !word->Reached(target)) return health;
    if (deadline.passed()) return PeersMissing(group_, {members_[peer]}, timeout);
    word->Sleep(seen, kHealthInterval);
  }
}

absl::Status ShmPeers::Health(uint32_t peer) const {
  const RankControl& control = segment_->control(peer);
  switch (control.state.load(std::memory_order_acquire)) {
    case RankControl::kAbsent:
      return absl::OkStatus();  // until the timeout
    case RankControl::kPresent:
      if (segment_->Alive(peer)) return absl::OkStatus();
      return PeerLost(members_[peer], "died");
    case RankControl::kLeft:
      return PeerLost(members_[peer], "left the group");
    default:
      break;
  }
  const uint32_t blamed = control.blamed.load(std::memory_order_relaxed);
  if (blamed == members_[rank_]) return PeerLost(members_[peer], "declared this rank lost");
  return PeerLost(blamed, "was lost (reported by a peer)");
}

void ShmPeers::GiveUp(uint32_t blamed) {
  segment_->control(rank_).blamed.store(blamed, std::memory_order_relaxed);
  Publish(RankControl::kFailed);
}

void ShmPeers::Leave() { Publish(RankControl::kLeft); }

void ShmPeers::Publish(RankControl::State state) {
  segment_->control(rank_).state.store(state, std::memory_order_release);
  // Peers may sleep on any rank's word, and so may this rank's own threads.
  for (uint32_t i = 0; i < members_.size(); ++i) segment_->control(i).progress.Wake();
}

}  // namespace muster::collectives
