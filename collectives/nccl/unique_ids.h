// NCCL's unique ids of a group: made by its root ranks, carried by the group's key store.
#ifndef MUSTER_COLLECTIVES_NCCL_UNIQUE_IDS_H_
#define MUSTER_COLLECTIVES_NCCL_UNIQUE_IDS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "collectives/nccl/nccl_library.h"

namespace muster::collectives {

// A rank that made an id serves the bootstrap of this many at most, itself included: every rank
// connects to it, so that above it is slower than several.
inline constexpr uint32_t kRanksPerNcclRoot = 256;

// How many ids a group of that size has: one where the library cannot take several.
uint32_t NcclRootCount(uint32_t size, const NcclLibrary& library);

// The rank that makes id `root`: the first of those whom NCCL has meet there.
uint32_t NcclRootRank(uint32_t root, uint32_t roots, uint32_t size);

// Where all ids of a group lie, one behind the other: each rank asks for one key, however many ids
// there are.
std::string NcclIdsKey(absl::string_view group_id);
// Where root `root`, from 1, puts its id for root 0, who puts all of them under NcclIdsKey.
std::string NcclRootIdKey(absl::string_view group_id, uint32_t root);

// Makes this rank's id if it is a root, and gives back those of all roots. A group of one rank
// needs no store. `interrupted` is asked now and then: what it returns ends the wait.
// DEADLINE_EXCEEDED names the root that did not come; what NCCL and the store return; DATA_LOSS.
absl::StatusOr<std::vector<NcclUniqueId>> ExchangeNcclUniqueIds(
    const GroupOptions& options, const NcclLibrary& library, absl::Time deadline,
    const std::function<absl::Status()>& interrupted);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_UNIQUE_IDS_H_
