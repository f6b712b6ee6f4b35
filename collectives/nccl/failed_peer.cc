#include "collectives/nccl/failed_peer.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/peer_status.h"
#include "common/time/deadline.h"

namespace muster::collectives {
namespace {

// Covers the time by which failures of the same cause differ: milliseconds where ranks lose one
// another in turn, the skew of their calls where they time out together.
constexpr absl::Duration kReportTime = absl::Milliseconds(500);
constexpr uint32_t kMaxRanksAsked = 64;

std::string FailedKey(const GroupOptions& options, uint32_t rank) {
  return absl::StrCat("nccl/", options.id, "/failed/", rank);
}

}  // namespace

absl::Status IdentifyFailedPeer(const GroupOptions& options, const absl::Status& status) {
  if (options.size == 1) return status;
  // Published for any kind of failure: a rank that has reported is not the lost one.
  options.store->Put(FailedKey(options, options.rank), "").IgnoreError();
  const bool timed_out = absl::IsDeadlineExceeded(status);
  if (!timed_out && !absl::IsUnavailable(status)) return status;
  std::vector<uint32_t> silent;
  const Deadline deadline(kReportTime);
  const uint32_t asked = std::min(options.size - 1, kMaxRanksAsked);
  for (uint32_t i = 1; i <= asked; ++i) {
    const uint32_t peer = (options.rank + i) % options.size;
    const absl::Status report =
        options.store->Get(FailedKey(options, peer), deadline.left()).status();
    if (absl::IsDeadlineExceeded(report)) {
      silent.push_back(options.members[peer]);
    } else if (!report.ok()) {
      return status;  // the generation has ended: no rank is to blame
    }
  }
  if (silent.empty()) return status;
  std::sort(silent.begin(), silent.end());
  absl::Status named(status.code(), absl::StrCat(status.message(), "; no report from rank ",
                                                 absl::StrJoin(silent, ", ")));
  if (timed_out || silent.size() == 1) SetPeerRank(silent.front(), &named);
  return named;
}

}  // namespace muster::collectives
