// From the store's records back to a state to step on from.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "common/status.h"
#include "common/version.h"
#include "coordinator/core/core_impl.h"
#include "coordinator/core/recovery/migration.h"
#include "coordinator/core/records.h"

namespace muster::core {

absl::StatusOr<Effects> Core::Impl::Load(absl::Span<const store::Record> stored, Time now) {
  now_ = now;
  ASSIGN_OR_RETURN(Migration migration, Migrate(stored));
  ASSIGN_OR_RETURN(Records records, ReadRecords(migration.records));
  effects_.writes = std::move(migration.writes);
  if (migration.from != 0 && migration.from != kSchemaVersion) {
    effects_.logs.push_back(absl::StrCat("the store is migrated from schema ", migration.from,
                                         " to ", kSchemaVersion, ": ", stored.size(),
                                         " records become ", migration.records.size()));
  }
  forgotten_ = std::move(records.forgotten);
  for (auto& [name, record] : records.nodes) {
    Node& node = nodes_[name];
    node.record = std::move(record);
    node.last_heard = now.steady;
  }
  for (auto& [id, record] : records.jobs) {
    Job& job = jobs_[id];
    job.record = std::move(record);
    job.state_since = now.steady;
    for (v1::JobEvent& event : records.events[id]) job.events.push_back(std::move(event));
    for (auto& [number, generation] : records.generations[id]) {
      if (generation.over()) {
        job.past[number] = std::move(generation);
      } else {
        job.generation.emplace(std::move(generation), now.steady);
      }
    }
    next_queue_sequence_ = std::max(next_queue_sequence_, job.record.queue_sequence() + 1);
    if (!job.job().idempotency_key().empty()) {
      idempotency_keys_.emplace(job.job().idempotency_key(), id);
    }
    if (job.state() == v1::QUEUED) queue_.Add(job.record);
    if (IsTerminal(job.state())) finished_.emplace(FromProto(job.job().finish_time()), id);
    if (job.generation.has_value()) Resume(job);
  }
  capacity_changed_ = true;
  return FinishStep();
}

void Core::Impl::Resume(Job& job) {
  for (const v1::NodePlacement& placement : job.generation->record.nodes()) {
    Node& node = nodes_[NodeName(placement.node())];
    if (node.record.name().empty()) {
      node.record.set_name(placement.node());
      node.record.set_incarnation(placement.incarnation());
    }
    for (const v1::RankRecord& rank : placement.ranks()) {
      if (rank.exited() || rank.lost()) continue;
      node.Occupy({job.id(), Generation(job.generation->record.generation()), rank.rank()},
                  {rank.slots().begin(), rank.slots().end()});
    }
    // Also where all ranks have ended: the node may know of barriers that they passed.
    node.state = v1::SUSPECT;
    node.last_heard = now_.steady;
    timers_.Set({TimerKey::Kind::kLease, placement.node()}, now_.steady + options_.lease);
  }
  active_.insert(job.id());
  RecallFailures(job);
  ArmTimeLimit(job);
  if (job.state() == v1::STARTING) ArmRendezvous(job, v1::STARTED);
  if (job.state() == v1::STOPPING && !job.generation->failures.empty() && !IsAttributed(job)) {
    timers_.Set({TimerKey::Kind::kCause, job.job().job_id()}, now_.steady + options_.cause_window);
  }
}

}  // namespace muster::core
