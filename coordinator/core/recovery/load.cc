#include "coordinator/core/recovery/load.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "coordinator/core/batches.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"
#include "coordinator/core/recovery/migration.h"
#include "coordinator/core/recovery/read_records.h"

namespace muster::core {
namespace {

// Adds this coordinator's start to the history of the store, with the first commit that it makes.
void RecordStart(Context& context) {
  StoreIdentity& store = context.store;
  store.starts.push_back(
      {absl::StrCat(absl::Hex(context.options.incarnation.value())), store.commit_index + 1});
  context.effects.writes.push_back(PutStart(store));
}

}  // namespace

absl::StatusOr<LoadedJobs> LoadState(absl::Span<const store::Record> stored, Jobs& jobs,
                                     NodeSessions& nodes, SecretTable& secrets,
                                     IdentityTable& identities, Fence& fence, Context& context) {
  ASSIGN_OR_RETURN(Unstaged unstaged, Unstage(stored));
  ASSIGN_OR_RETURN(Migration migration, Migrate(unstaged.records));
  ASSIGN_OR_RETURN(Records records, ReadRecords(migration.records));
  context.clock.Continue(records.last_commit, context.now);
  context.now = context.clock.At(context.now);
  context.effects.writes = std::move(unstaged.writes);
  std::move(migration.writes.begin(), migration.writes.end(),
            std::back_inserter(context.effects.writes));
  if (migration.from != 0 && migration.from != kSchemaVersion) {
    context.Log(absl::StrCat("migrating the store from schema ", migration.from, " to ",
                             kSchemaVersion, ": ", stored.size(), " records become ",
                             migration.records.size()));
  }
  context.store = std::move(records.store);
  if (context.store.cluster_id.empty()) {
    context.store.cluster_id = context.options.new_cluster_id;
    context.effects.writes.push_back(PutCluster(context.store.cluster_id));
  }
  RecordStart(context);
  for (auto& [id, keys] : records.forgotten) jobs.eviction.RestoreForgotten(id, std::move(keys));
  for (const v1::JobRecord& record : records.kept_keys) jobs.eviction.RestoreKey(record);
  for (auto& [name, record] : records.nodes) nodes.Restore(std::move(record));
  for (const v1::OwnerRecord& record : records.owners) jobs.owners.Restore(record);
  for (v1::SecretRecord& record : records.secrets) secrets.Restore(std::move(record));
  for (v1::IdentityRecord& record : records.identities) identities.Restore(std::move(record));
  for (v1::JoinTokenRecord& record : records.join_tokens) identities.Restore(std::move(record));
  fence.Restore(records.fence);
  std::vector<JobId> active, queued;
  for (auto& [id, loaded] : records.jobs) {
    for (v1::JobEvent& event : records.events[id]) loaded.events.push_back(std::move(event));
    for (auto& [number, generation] : records.generations[id]) {
      if (generation.over()) {
        loaded.past[number] = std::move(generation);
      } else {
        loaded.generation.emplace(std::move(generation), context.now.steady);
      }
    }
    const Job& job = jobs.submission.Restore(std::move(loaded));
    for (v1::LogTail& tail : records.log_tails[id]) {
      jobs.log_tails.Restore(job, std::move(tail));
    }
    const auto history = records.histories.find(id);
    if (history != records.histories.end()) jobs.histories.Restore(job, history->second);
    if (job.not_before.has_value()) {
      context.timers.Set({TimerKey::Kind::kDelay, id.value()}, *job.not_before);
    } else if (job.state() == v1::QUEUED) {
      queued.push_back(id);
    }
    if (job.generation.has_value()) active.push_back(id);
  }
  jobs.states.FinishRestore();
  jobs.eviction.FinishRestore();
  // Tasks of an array that held one of its places get it again; then the others, by index.
  std::sort(queued.begin(), queued.end(), [&jobs](const JobId& a, const JobId& b) {
    const auto order = [&jobs](const JobId& id) {
      const Job& job = jobs.table.at(id);
      return std::make_pair(job.status.reason() == reasons::kArrayLimit, job.queue_sequence);
    };
    return order(a) < order(b);
  });
  return LoadedJobs{std::move(queued), std::move(active)};
}

}  // namespace muster::core
