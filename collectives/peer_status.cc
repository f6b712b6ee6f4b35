#include "collectives/peer_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/communicator.h"

namespace muster::collectives {

absl::Status PeerLost(uint32_t job_rank, absl::string_view what) {
  absl::Status status = absl::UnavailableError(absl::StrCat("rank ", job_rank, " ", what));
  SetPeerRank(job_rank, &status);
  return status;
}

absl::Status PeersMissing(absl::string_view group, const std::vector<uint32_t>& job_ranks,
                          absl::Duration timeout) {
  absl::Status status = absl::DeadlineExceededError(
      absl::StrCat(group, ": timed out after ", absl::FormatDuration(timeout), " waiting for rank ",
                   absl::StrJoin(job_ranks, ", ")));
  if (!job_ranks.empty()) SetPeerRank(job_ranks.front(), &status);
  return status;
}

void SetPeerRank(uint32_t job_rank, absl::Status* status) {
  status->SetPayload(kPeerRankPayload, absl::Cord(absl::StrCat(job_rank)));
}

absl::optional<uint32_t> PeerRankOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPeerRankPayload);
  uint32_t rank = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &rank)) return absl::nullopt;
  return rank;
}

}  // namespace muster::collectives
