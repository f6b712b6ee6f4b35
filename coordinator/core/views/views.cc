#include "coordinator/core/views/views.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "coordinator/core/scheduler/explain.h"
#include "coordinator/core/steady_clock.h"
#include "proto/muster/v1/store.pb.h"
#include "spec/spec.h"

namespace muster::core {
namespace {

// The most blockers listed in the wait for resources; the others are only counted.
constexpr size_t kShownBlockers = 256;

// A wait for the end of a delay. A client reads its end from estimated_start_time.
v1::Wait DelayWait(const Job& job, Time now) {
  v1::Wait wait;
  wait.set_what("delay");
  *wait.mutable_since() = ToProto(now.steady - job.state_since);
  const absl::Duration left = std::max(*job.not_before - now.steady, absl::ZeroDuration());
  wait.add_missing()->set_reason(
      absl::StrCat(DelayReason(job), "; ", NextAttempt(job), " follows in ",
                   absl::FormatDuration(absl::Ceil(left, absl::Seconds(1)))));
  return wait;
}

void AddMissing(const std::vector<std::string>& ids, const char* end, const JobTable& jobs,
                v1::Wait& wait) {
  for (const std::string& id : ids) {
    v1::WaitedFor& missing = *wait.add_missing();
    missing.set_reason(absl::StrCat(jobs.arrays().Find(id) == nullptr ? "job " : "array ", id,
                                    " has to ", end, " and is ",
                                    v1::JobState_Name(jobs.StateOf(id))));
  }
}

v1::Wait ResourceWait(std::vector<v1::WaitedFor> blockers, absl::Duration since) {
  v1::Wait wait;
  wait.set_what("resources");
  *wait.mutable_since() = ToProto(since);
  const size_t shown = std::min(blockers.size(), kShownBlockers);
  for (size_t i = 0; i < shown; ++i) *wait.add_missing() = std::move(blockers[i]);
  if (blockers.size() > shown) {
    wait.add_missing()->set_reason(absl::StrCat("and ", blockers.size() - shown, " more"));
  }
  return wait;
}

v1::JobSpec BriefSpec(const v1::JobSpec& spec) {
  v1::JobSpec brief;
  brief.set_name(spec.name());
  brief.set_priority(spec.priority());
  brief.set_priority_class(spec.priority_class());
  brief.set_launcher(spec.launcher());
  if (spec.has_time_limit()) *brief.mutable_time_limit() = spec.time_limit();
  const v1::Resources& resources = spec.resources();
  *brief.mutable_resources()->mutable_nodes() = resources.nodes();
  brief.mutable_resources()->set_ranks_per_node(resources.ranks_per_node());
  brief.mutable_resources()->set_ranks(resources.ranks());
  brief.mutable_resources()->set_device(resources.device());
  brief.mutable_resources()->set_devices_per_rank(resources.devices_per_rank());
  brief.mutable_resources()->set_exclusive(resources.exclusive());
  if (!spec.has_train()) return brief;
  brief.mutable_train()->set_epochs(spec.train().epochs());
  brief.mutable_train()->set_max_steps(spec.train().max_steps());
  brief.mutable_train()->set_global_batch(spec.train().global_batch());
  const v1::CheckpointSpec& checkpoint = spec.train().checkpoint();
  if (checkpoint.has_every()) {
    *brief.mutable_train()->mutable_checkpoint()->mutable_every() = checkpoint.every();
  }
  if (checkpoint.has_keep()) {
    brief.mutable_train()->mutable_checkpoint()->set_keep(checkpoint.keep());
  }
  return brief;
}

v1::FirstFailure BriefFailure(const v1::FirstFailure& failure) {
  v1::FirstFailure brief;
  brief.set_generation(failure.generation());
  brief.set_reason(failure.reason());
  if (failure.has_rank()) brief.set_rank(failure.rank());
  brief.set_node(failure.node());
  brief.set_message(failure.message());
  if (failure.has_time()) *brief.mutable_time() = failure.time();
  if (!failure.has_exit()) return brief;
  brief.mutable_exit()->set_exit_code(failure.exit().exit_code());
  brief.mutable_exit()->set_signal(failure.exit().signal());
  brief.mutable_exit()->set_out_of_memory(failure.exit().out_of_memory());
  return brief;
}

v1::TrainSummary BriefSummary(const v1::TrainSummary& summary) {
  v1::TrainSummary brief;
  brief.set_steps(summary.steps());
  brief.set_epochs(summary.epochs());
  brief.set_images_per_second(summary.images_per_second());
  brief.set_final_loss(summary.final_loss());
  brief.set_test_accuracy(summary.test_accuracy());
  brief.set_test_loss(summary.test_loss());
  brief.set_weights_digest(summary.weights_digest());
  brief.set_checkpoint(summary.checkpoint());
  return brief;
}

// Adds the ranks of the newest generation; `living` is null when it has ended.
void AddRanks(const v1::GenerationRecord& record, const GenerationState* living, Time now,
              v1::Job& view) {
  for (int node_rank = 0; node_rank < record.nodes_size(); ++node_rank) {
    for (const v1::RankRecord& of_rank : record.nodes(node_rank).ranks()) {
      v1::RankStatus& status = *view.add_ranks();
      status.set_rank(of_rank.rank());
      status.set_local_rank(of_rank.local_rank());
      status.set_node_rank(node_rank);
      status.set_node(record.nodes(node_rank).node());
      *status.mutable_slots() = of_rank.slots();
      status.set_phase(v1::EXITED);
      status.set_unkillable(of_rank.unkillable());
      if (of_rank.exited()) *status.mutable_exit() = FromRecord(of_rank.exit());
      if (living == nullptr) continue;
      const RankState& state = living->ranks[of_rank.rank()];
      status.set_phase(state.phase);
      status.set_pid(state.pid);
      if (state.progress.has_value()) *status.mutable_progress() = *state.progress;
      if (!state.gone()) status.set_memory_bytes(state.memory_bytes);
      *status.mutable_last_seen() = ToProto(now.steady - state.last_seen);
    }
  }
}

uint32_t WorldSizeOf(const Job& job) {
  const bool waits = job.state() == v1::QUEUED || job.state() == v1::HELD;
  const v1::GenerationRecord* const record =
      waits ? nullptr : job.FindRecord(Generation(job.status.generation()));
  if (record == nullptr) return spec::MaxWorldSize(job.spec());
  uint32_t ranks = 0;
  for (const v1::NodePlacement& node : record->nodes()) ranks += node.ranks_size();
  return ranks;
}

}  // namespace

v1::Node Views::OfNode(const Node& node, const Time& now) const {
  const v1::NodeRecord& record = node.record;
  v1::Node view;
  view.set_name(record.name());
  view.set_state(node.state);
  view.set_cordoned(record.cordoned());
  view.set_cordon_reason(record.cordon_reason());
  view.set_leaving(node.leaving);
  view.set_machine_id(record.machine_id());
  view.set_conflict(node.conflict);
  view.set_incarnation(record.incarnation());
  view.set_address(node.address);
  view.set_metrics_address(node.metrics_address);
  *view.mutable_labels() = node.hello.labels();
  view.set_software_version(node.hello.software_version());
  view.set_cpu_count(node.hello.cpu_count());
  view.set_memory_bytes(node.hello.memory_bytes());
  if (node.seen) *view.mutable_heartbeat_age() = ToProto(now.steady - node.last_heard);
  view.set_failed_launches(record.failed_launches());
  if (node.IsCoolingDown()) {
    *view.mutable_cool_down() =
        ToProto(std::max(FromStored(record.cool_down_until()) - now.steady, absl::ZeroDuration()));
  }
  view.set_launch_failure(record.launch_failure());
  view.set_limits_unavailable(node.hello.limits_unavailable());
  view.set_cordoned_by_health(record.cordoned_by_health());
  if (record.has_drain_until() && !node.ranks.by_slot().empty()) {
    *view.mutable_drain_deadline() =
        ToProto(std::max(FromStored(record.drain_until()) - now.steady, absl::ZeroDuration()));
  }
  const bool is_tested = !node.self_test.report.checks().empty();
  if (node.self_test.running || is_tested)
    view.mutable_self_test()->set_running(node.self_test.running);
  if (is_tested) {
    *view.mutable_self_test()->mutable_checks() = node.self_test.report.checks();
    *view.mutable_self_test()->mutable_age() = ToProto(now.steady - node.self_test.answered);
    *view.mutable_self_test()->mutable_duration() = node.self_test.report.duration();
  }
  for (const v1::Slot& offered : node.hello.slots()) {
    v1::Slot& slot = *view.add_slots();
    slot.set_index(offered.index());
    slot.set_kind(offered.kind());
    slot.set_uuid(offered.uuid());
    slot.set_unavailable(offered.unavailable());
    slot.set_returning(offered.returning());
    if (offered.has_device()) *slot.mutable_device() = offered.device();
    if (const UnkillableRank* const held = node.ranks.FindUnkillable(offered.index())) {
      slot.set_unavailable(Describe(*held));
      slot.set_returning(false);
    }
    const auto holder = node.ranks.by_slot().find(offered.index());
    if (holder == node.ranks.by_slot().end()) continue;
    slot.set_job_id(holder->second.job.value());
    slot.set_generation(holder->second.generation.value());
    slot.set_rank(holder->second.rank);
  }
  return view;
}

v1::Job Views::Summary(const Job& job) const {
  v1::Job view = job.status;
  *view.mutable_spec() = job.spec();
  if (view.state() != v1::SUCCEEDED) view.clear_summary();
  view.set_queue_position(scheduler_.PositionOf(job.id()));
  view.set_unplaceable(scheduler_.queue().UnplaceableReason(job.id()));
  view.set_slowdown(stragglers_.HighestSlowdown(job.id()));
  view.clear_past_failures();
  view.clear_past_failures_omitted();
  view.clear_warnings();
  view.set_world_size(WorldSizeOf(job));
  return view;
}

v1::Job Views::Answer(const Job& job) const {
  v1::Job view = Summary(job);
  std::string warning = LimitsWarning(job.spec().resources(), nodes_.all());
  if (!warning.empty()) view.add_warnings(std::move(warning));
  return view;
}

v1::Job Views::ListEntry(const Job& job) const {
  const v1::Job& status = job.status;
  v1::Job view;
  view.set_job_id(status.job_id());
  *view.mutable_spec() = BriefSpec(job.spec());
  view.set_state(status.state());
  view.set_reason(status.reason());
  view.set_message(status.message());
  view.set_generation(status.generation());
  if (status.has_submit_time()) *view.mutable_submit_time() = status.submit_time();
  if (status.has_start_time()) *view.mutable_start_time() = status.start_time();
  if (status.has_finish_time()) *view.mutable_finish_time() = status.finish_time();
  view.set_restarts(status.restarts());
  view.set_restarts_used(status.restarts_used());
  view.set_preemptions(status.preemptions());
  view.set_exit_code(status.exit_code());
  if (status.has_first_failure()) {
    *view.mutable_first_failure() = BriefFailure(status.first_failure());
  }
  if (status.has_summary() && status.state() == v1::SUCCEEDED) {
    *view.mutable_summary() = BriefSummary(status.summary());
  }
  if (status.has_progress()) *view.mutable_progress() = status.progress();
  if (status.has_checkpoint()) *view.mutable_checkpoint() = status.checkpoint();
  if (status.has_hang()) *view.mutable_hang() = status.hang();
  view.set_idempotency_key(status.idempotency_key());
  view.set_owner(status.owner());
  view.set_shared(status.shared());
  view.set_array_id(status.array_id());
  view.set_array_index(status.array_index());
  view.set_array_count(status.array_count());
  *view.mutable_array_values() = status.array_values();
  view.set_queue_position(scheduler_.PositionOf(job.id()));
  view.set_unplaceable(scheduler_.queue().UnplaceableReason(job.id()));
  view.set_slowdown(stragglers_.HighestSlowdown(job.id()));
  view.set_world_size(WorldSizeOf(job));
  return view;
}

v1::Job Views::Details(const Job& job, Time now) const {
  v1::Job view = Summary(job);
  *view.mutable_past_failures() = job.status.past_failures();
  view.set_past_failures_omitted(job.status.past_failures_omitted());
  *view.mutable_warnings() = job.status.warnings();
  v1::Goodput goodput = job.time_account.View(now);
  if (goodput.causes_size() > 0) *view.mutable_goodput() = std::move(goodput);
  const GenerationState* const living = job.generation.has_value() ? &*job.generation : nullptr;
  const v1::GenerationRecord* const record = job.FindRecord(Generation(view.generation()));
  if (record != nullptr) AddRanks(*record, living, now, view);
  for (v1::RankStatus& rank : *view.mutable_ranks()) {
    rank.set_slowdown(stragglers_.SlowdownOf(job.id(), rank.rank()));
  }
  const std::optional<v1::Wait> admission = AdmissionWait(job, now);
  if (job.not_before.has_value()) {
    *view.add_waits() = DelayWait(job, now);
    *view.mutable_estimated_start_time() = ToProto(now.wall + (*job.not_before - now.steady));
  } else if (admission.has_value()) {
    *view.add_waits() = *admission;
  } else if (job.state() == v1::QUEUED) {
    *view.add_waits() =
        ResourceWait(Blockers(job, scheduler_, nodes_.all(), now), now.steady - job.state_since);
  }
  for (v1::RankInspection& rank : hangs_.Inspections(job.id())) {
    *view.mutable_hang()->add_ranks() = std::move(rank);
  }
  for (v1::Wait& wait : fence_.Waits(job.id())) *view.add_waits() = std::move(wait);
  for (v1::Wait& wait : rendezvous_.Waits(job, now)) *view.add_waits() = std::move(wait);
  if (job.state() == v1::QUEUED && !job.not_before.has_value() && !admission.has_value()) {
    const StartEstimate start = EstimateOf(job, jobs_, scheduler_, nodes_.all(), now);
    if (start.in.has_value()) {
      *view.mutable_estimated_start_time() =
          ToProto(now.wall + std::max(*start.in, absl::ZeroDuration()));
    }
    view.set_estimate_basis(start.basis);
  }
  return view;
}

std::optional<v1::Wait> Views::AdmissionWait(const Job& job, const Time& now) const {
  if (job.state() != v1::QUEUED) return std::nullopt;
  v1::Wait wait;
  *wait.mutable_since() = ToProto(now.steady - job.state_since);
  if (!job.after.empty()) {
    wait.set_what("dependency");
    AddMissing(job.after.ok, "succeed", jobs_, wait);
    AddMissing(job.after.failed, "fail", jobs_, wait);
    AddMissing(job.after.any, "end", jobs_, wait);
    return wait;
  }
  const std::string limit = jobs_.arrays().WaitText(job);
  if (limit.empty()) return std::nullopt;
  wait.set_what("array");
  wait.add_missing()->set_reason(limit);
  return wait;
}

}  // namespace muster::core
