// Exchange of a group's NCCL unique ids: created by its root ranks, distributed through the group's
// key store.
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
#include "common/time/deadline.h"

namespace muster::collectives {

// Maximum number of ranks that one root serves during bootstrap, itself included: every rank
// connects to its root, so larger groups bootstrap faster with several.
inline constexpr uint32_t kRanksPerNcclRoot = 256;

// Number of ids of a group of that size; one if the library does not support several.
uint32_t NcclRootCount(uint32_t size, const NcclLibrary& library);

// The rank that creates id `root`: the first of the ranks that NCCL bootstraps through it.
uint32_t NcclRootRank(uint32_t root, uint32_t roots, uint32_t size);

// Key of all ids of a group, concatenated: each rank reads one key, however many ids there are.
std::string NcclIdsKey(absl::string_view group_id);
// Key under which root `root`, from 1, publishes its id for root 0, which publishes all ids under
// NcclIdsKey.
std::string NcclRootIdKey(absl::string_view group_id, uint32_t root);

// Creates this rank's id if it is a root, and returns the ids of all roots. A group of one rank
// needs no store. `interrupted` is polled; a non-OK status ends the wait. DEADLINE_EXCEEDED names
// the root that published nothing; errors of NCCL and the store; DATA_LOSS.
absl::StatusOr<std::vector<NcclUniqueId>> ExchangeNcclUniqueIds(
    const GroupOptions& options, const NcclLibrary& library, const Deadline& deadline,
    const std::function<absl::Status()>& interrupted);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_UNIQUE_IDS_H_
