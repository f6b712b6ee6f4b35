// Statuses that name a lost job rank (kPeerRankPayload).
#ifndef MUSTER_COLLECTIVES_PEER_STATUS_H_
#define MUSTER_COLLECTIVES_PEER_STATUS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace muster::collectives {

// Returns UNAVAILABLE with the payload; `what` follows "rank N" in the message.
absl::Status PeerLost(uint32_t job_rank, absl::string_view what);

// Returns DEADLINE_EXCEEDED that names all of `job_ranks`, with the first as the payload. `group`
// is the group's name.
absl::Status PeersMissing(absl::string_view group, const std::vector<uint32_t>& job_ranks,
                          absl::Duration timeout);

void SetPeerRank(uint32_t job_rank, absl::Status* status);

// Returns the rank in the payload, if there is one.
absl::optional<uint32_t> PeerRankOf(const absl::Status& status);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_PEER_STATUS_H_
