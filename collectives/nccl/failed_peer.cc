#include "collectives/nccl/failed_peer.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "collectives/peer_status.h"

namespace muster::collectives {
namespace {

// Those who lose one another in turn do so within milliseconds, those who time out together within
// the skew of their calls.
constexpr absl::Duration kWordTime = absl::Milliseconds(500);
constexpr uint32_t kMaxWitnesses = 64;

std::string WordKey(const GroupOptions& options, uint32_t rank) {
  return absl::StrCat("nccl/", options.id, "/failed/", rank);
}

}  // namespace

absl::Status IdentifyFailedPeer(const GroupOptions& options, const absl::Status& status) {
  if (options.size == 1) return status;
  // Whatever it was: a rank that has spoken is not the one that is gone.
  options.store->Put(WordKey(options, options.rank), "").IgnoreError();
  const bool timed_out = absl::IsDeadlineExceeded(status);
  if (!timed_out && !absl::IsUnavailable(status)) return status;
  std::vector<uint32_t> silent;
  const absl::Time deadline = absl::Now() + kWordTime;
  const uint32_t asked = std::min(options.size - 1, kMaxWitnesses);
  for (uint32_t i = 1; i <= asked; ++i) {
    const uint32_t peer = (options.rank + i) % options.size;
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    const absl::Status told = options.store->Get(WordKey(options, peer), left).status();
    if (absl::IsDeadlineExceeded(told)) {
      silent.push_back(options.members[peer]);
    } else if (!told.ok()) {
      return status;  // the generation is over: nobody is to blame any more
    }
  }
  if (silent.empty()) return status;
  std::sort(silent.begin(), silent.end());
  absl::Status named(status.code(), absl::StrCat(status.message(), "; no word from rank ",
                                                 absl::StrJoin(silent, ", ")));
  if (timed_out || silent.size() == 1) SetPeerRank(silent.front(), &named);
  return named;
}

}  // namespace muster::collectives
