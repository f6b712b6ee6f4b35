#include "coordinator/core/recovery/migration.h"

#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/version.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

// Schema 1 to 2: each node of a generation gets a record of its own, so that the exit of a rank
// rewrites only that record and not the whole generation.
absl::StatusOr<std::vector<store::Mutation>> SplitGenerations(
    absl::Span<const store::Record> records) {
  std::vector<store::Mutation> writes;
  for (const store::Record& record : records) {
    if (!absl::StartsWith(record.key, kGenerationPrefix)) continue;
    v1::GenerationRecord generation;
    RETURN_IF_ERROR(ParseRecord(record, generation));
    writes.push_back(PutGeneration(generation));
    if (writes.back().key != record.key) {
      return absl::DataLossError(
          absl::StrCat("record ", record.key, " has the contents of record ", writes.back().key));
    }
    for (int node_rank = 0; node_rank < generation.nodes_size(); ++node_rank) {
      writes.push_back(PutPlacement(generation, node_rank));
    }
  }
  return writes;
}

// Schema 2 to 3: a job's record no longer embeds the API's Job message; its spec and summary become
// bytes.
absl::StatusOr<std::vector<store::Mutation>> SeparateJobs(absl::Span<const store::Record> records) {
  std::vector<store::Mutation> writes;
  for (const store::Record& record : records) {
    if (!absl::StartsWith(record.key, kJobPrefix)) continue;
    v1::JobRecord job;
    v1::JobRecordV2 old;
    RETURN_IF_ERROR(ParseRecord(record, job));
    RETURN_IF_ERROR(ParseRecord(record, old));
    job.DiscardUnknownFields();
    v1::JobRecordV2::Job& status = *old.mutable_job();
    job.set_job_id(status.job_id());
    job.set_spec(status.spec());
    job.set_state(status.state());
    job.set_reason(status.reason());
    job.set_message(status.message());
    job.set_generation(status.generation());
    if (status.has_submit_time()) *job.mutable_submit_time() = status.submit_time();
    if (status.has_start_time()) *job.mutable_start_time() = status.start_time();
    if (status.has_finish_time()) *job.mutable_finish_time() = status.finish_time();
    job.set_restarts(status.restarts());
    job.set_exit_code(status.exit_code());
    job.set_idempotency_key(status.idempotency_key());
    if (status.has_first_failure()) *job.mutable_first_failure() = status.first_failure();
    *job.mutable_past_failures() = status.past_failures();
    if (status.has_summary()) job.set_summary(status.summary());
    writes.push_back(Put(job));
    if (writes.back().key != record.key) {
      return absl::DataLossError(
          absl::StrCat("record ", record.key, " has the contents of record ", writes.back().key));
    }
  }
  return writes;
}

// Schema 3 to 4: the store gets a cluster id and a commit index, which loading adds (load.cc).
// Older versions cannot read them.
absl::StatusOr<std::vector<store::Mutation>> AddIdentity(absl::Span<const store::Record>) {
  return std::vector<store::Mutation>();
}

// Schema 4 to 5: the store gets a record of each coordinator's start, of which loading adds the
// first (load.cc). Older versions cannot read it.
absl::StatusOr<std::vector<store::Mutation>> AddStarts(absl::Span<const store::Record>) {
  return std::vector<store::Mutation>();
}

// Schema 5 to 6: the store may have records of owners and of secrets. Older versions cannot read
// them.
absl::StatusOr<std::vector<store::Mutation>> AddOwners(absl::Span<const store::Record>) {
  return std::vector<store::Mutation>();
}

// Schema 6 to 7: the store may have histories of jobs, of which older jobs have none, and identities
// of nodes and join tokens. Older versions cannot read them.
absl::StatusOr<std::vector<store::Mutation>> AddHistoriesAndIdentities(
    absl::Span<const store::Record>) {
  return std::vector<store::Mutation>();
}

// The element at [v - 1] migrates schema v to v + 1. It gets all records and returns the writes and
// deletions. It must not change once a release contains it.
using Step = absl::StatusOr<std::vector<store::Mutation>> (*)(absl::Span<const store::Record>);
constexpr Step kSteps[] = {SplitGenerations, SeparateJobs, AddIdentity,
                           AddStarts,        AddOwners,    AddHistoriesAndIdentities};
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

absl::StatusOr<Migration> Migrate(absl::Span<const store::Record> stored) {
  Migration migration;
  ASSIGN_OR_RETURN(migration.from, ReadSchema(stored));
  if (migration.from > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the store has schema ", migration.from,
        ", written by a newer Muster; this version supports schemas up to ", kSchemaVersion));
  }
  migration.records.assign(stored.begin(), stored.end());
  if (migration.from == 0) migration.writes.push_back(PutSchema());
  for (uint32_t version = migration.from; version != 0 && version < kSchemaVersion; ++version) {
    ASSIGN_OR_RETURN(std::vector<store::Mutation> writes, kSteps[version - 1](migration.records));
    migration.records = Apply(writes, std::move(migration.records));
    std::move(writes.begin(), writes.end(), std::back_inserter(migration.writes));
    if (version + 1 == kSchemaVersion) migration.writes.push_back(PutSchema());
  }
  return migration;
}

}  // namespace muster::core
