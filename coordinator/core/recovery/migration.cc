#include "coordinator/core/recovery/migration.h"

#include <array>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

constexpr std::array<MigrationStep, 0> kSteps = {};
static_assert(std::size(kSteps) + 1 == kSchemaVersion);

absl::StatusOr<uint32_t> ReadSchema(absl::Span<const store::Record> records) {
  if (records.empty()) return 0;
  for (const store::Record& record : records) {
    if (record.key != kSchemaKey) continue;
    v1::SchemaRecord schema;
    RETURN_IF_ERROR(ParseRecord(record, schema));
    if (schema.version() == 0) return absl::DataLossError("the store's schema has no version");
    return schema.version();
  }
  return absl::DataLossError("the store has records but no schema");
}

std::vector<store::Record> Apply(absl::Span<const store::Mutation> writes,
                                 std::vector<store::Record> records) {
  std::map<std::string, std::string> by_key;
  for (store::Record& record : records) by_key[record.key] = std::move(record.value);
  for (const store::Mutation& write : writes) {
    if (write.value.has_value()) {
      by_key[write.key] = *write.value;
    } else {
      by_key.erase(write.key);
    }
  }
  std::vector<store::Record> result;
  for (auto& [key, value] : by_key) result.push_back({key, std::move(value)});
  return result;
}

}  // namespace

absl::Span<const MigrationStep> MigrationSteps() { return kSteps; }

absl::StatusOr<Migration> Migrate(absl::Span<const store::Record> stored,
                                  absl::Span<const MigrationStep> steps) {
  const uint32_t current = steps.size() + 1;
  Migration migration;
  ASSIGN_OR_RETURN(migration.from, ReadSchema(stored));
  if (migration.from > current) {
    return absl::FailedPreconditionError(
        absl::StrCat("the store has schema ", migration.from,
                     ", written by a newer Muster; this version supports schemas up to ", current));
  }
  migration.records.assign(stored.begin(), stored.end());
  if (migration.from == current) return migration;
  if (migration.from != 0) {
    for (const MigrationStep step : steps.subspan(migration.from - 1)) {
      ASSIGN_OR_RETURN(std::vector<store::Mutation> writes, step(migration.records));
      migration.records = Apply(writes, std::move(migration.records));
      std::move(writes.begin(), writes.end(), std::back_inserter(migration.writes));
    }
  }
  migration.writes.push_back(PutSchema(current));
  return migration;
}

}  // namespace muster::core
