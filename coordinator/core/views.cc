#include "coordinator/core/views.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "coordinator/core/admission.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "coordinator/core/scheduler/explain.h"

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

}  // namespace

v1::Job Views::Summary(const Job& job) const {
  v1::Job view = job.status;
  if (view.state() != v1::SUCCEEDED) view.clear_summary();
  view.set_queue_position(scheduler_.PositionOf(job.id()));
  view.set_unplaceable(scheduler_.queue().UnplaceableReason(job.id()));
  view.set_slowdown(stragglers_.HighestSlowdown(job.id()));
  view.clear_past_failures();
  view.clear_warnings();
  return view;
}

v1::Job Views::Details(const Job& job, Time now) const {
  v1::Job view = Summary(job);
  *view.mutable_past_failures() = job.status.past_failures();
  *view.mutable_warnings() = job.status.warnings();
  v1::Goodput goodput = job.time_account.View(now);
  if (goodput.causes_size() > 0) *view.mutable_goodput() = std::move(goodput);
  const GenerationState* const living = job.generation.has_value() ? &*job.generation : nullptr;
  const v1::GenerationRecord* const record = job.FindRecord(Generation(view.generation()));
  if (record != nullptr) AddRanks(*record, living, now, view);
  for (v1::RankStatus& rank : *view.mutable_ranks()) {
    rank.set_slowdown(stragglers_.SlowdownOf(job.id(), rank.rank()));
  }
  const std::optional<v1::Wait> admission = AdmissionWait(job, jobs_, now);
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

}  // namespace muster::core
