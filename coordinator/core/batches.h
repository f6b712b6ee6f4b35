// Commits steps in write batches of bounded size, as replicated stores (etcd) limit transactions.
//
// A step's writes are one transaction, whatever their number and size. Steps within the bounds are
// committed as they are, several per batch. The writes of a larger step are staged first, in
// records of their own; then its commit record, with the number of these, makes them count; then
// they are carried out, and the staged records are deleted. A coordinator that starts in between
// carries them out, or drops staged records that no commit record counts.
#ifndef MUSTER_COORDINATOR_CORE_BATCHES_H_
#define MUSTER_COORDINATOR_CORE_BATCHES_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/store/store.h"

namespace muster::core {

// Limits of a batch: operations, and bytes of keys and values. A value has fewer bytes than a
// batch.
inline constexpr size_t kBatchOperations = 128;
inline constexpr size_t kBatchBytes = 1 << 20;

// Splits the writes of steps, each of which ends with its commit record, into batches to be
// committed one after another. No batch has two writes of a key.
std::vector<std::vector<store::Mutation>> SplitIntoBatches(std::vector<store::Mutation> writes);

// Splits the writes and commits the batches. Errors: those of Store::Commit.
absl::Status CommitInBatches(store::Store& store, std::vector<store::Mutation> writes);

struct Unstaged {
  std::vector<store::Record> records;  // the state after `writes`
  std::vector<store::Mutation> writes;
};
// Carries out the staged writes in the records of a store, or drops them if no commit record counts
// them. Errors: DATA_LOSS if staged records are missing or cannot be parsed.
absl::StatusOr<Unstaged> Unstage(absl::Span<const store::Record> stored);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_BATCHES_H_
