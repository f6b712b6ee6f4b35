// Migrates records of an older schema to the schema of this build, the number of steps plus one.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_MIGRATION_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_MIGRATION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/store/store.h"

namespace muster::core {

struct Migration {
  uint32_t from = 0;                   // 0: the store is empty
  std::vector<store::Record> records;  // the state after `writes`
  // Must be committed in one batch; empty when `from` is current.
  std::vector<store::Mutation> writes;
};

// Migrates all records of a store from one schema to the next: returns writes and deletions. A step
// must not change once a release contains it.
using MigrationStep =
    absl::StatusOr<std::vector<store::Mutation>> (*)(absl::Span<const store::Record>);

// The element at [v - 1] migrates schema v to v + 1.
absl::Span<const MigrationStep> MigrationSteps();

// Errors: FAILED_PRECONDITION for a newer schema, DATA_LOSS for records that have no schema or
// cannot be parsed.
absl::StatusOr<Migration> Migrate(absl::Span<const store::Record> stored,
                                  absl::Span<const MigrationStep> steps = MigrationSteps());

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_MIGRATION_H_
