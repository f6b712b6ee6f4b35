#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "common/time/proto_time.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "coordinator/core/scheduler/estimate.h"
#include "coordinator/core/scheduler/explain.h"
#include "coordinator/core/scheduler/placement/placement.h"
#include "coordinator/core/scheduler/queue_blockers.h"
#include "coordinator/core/views/views.h"

namespace muster::core {
namespace {

google::protobuf::Timestamp StartOf(absl::Duration in, const Time& now) {
  return ToProto(now.wall + std::max(in, absl::ZeroDuration()));
}

// A job that does not exist, as it would be after its submission.
Job MakeJob(const v1::JobSpec& spec, const Actor& actor, const Time& now) {
  Job job;
  job.status.set_job_id(spec.name() + "/forecast");  // not an id that a job can have
  job.SetSpec(spec);
  job.status.set_state(v1::QUEUED);
  job.status.set_owner(actor.name);
  job.submitted = now.steady;
  job.queue_sequence = std::numeric_limits<uint64_t>::max();
  return job;
}

}  // namespace

v1::QueuedJob Views::QueuedView(const JobQueue::Entry& entry, const Time& now) const {
  const Plan& plan = scheduler_.plan();
  v1::QueuedJob queued;
  *queued.mutable_job() = ListEntry(jobs_.at(entry.id));
  const Reservation* const kept = plan.FindReservation(entry.id);
  const bool overdue = kept != nullptr && kept->overdue;
  queued.set_effective_class(overdue ? "overdue" : std::string(NameOf(entry.job_class)));
  queued.set_waits_for(WaitsFor(entry.id, plan.Find(entry), plan));
  if (kept == nullptr) return queued;
  for (const NodeName& node : kept->nodes) queued.add_reserved_nodes(node.value());
  if (kept->from < SteadyTime::Infinite()) {
    *queued.mutable_reserved_from() = StartOf(kept->from - now.steady, now);
  }
  return queued;
}

v1::QueuedJob Views::WaitingView(const Job& job, const Time& now) const {
  v1::QueuedJob queued;
  *queued.mutable_job() = ListEntry(job);
  queued.set_effective_class(std::string(NameOf(ClassOf(job.spec().priority_class()))));
  if (job.not_before.has_value()) {
    queued.set_waits_for("a delay before its next attempt");
    *queued.mutable_estimated_start_time() = ToProto(now.wall + (*job.not_before - now.steady));
  } else if (const std::optional<v1::Wait> wait = AdmissionWait(job, now)) {
    queued.set_waits_for(wait->missing_size() > 0 ? wait->missing(0).reason() : wait->what());
  }
  return queued;
}

v1::GetQueueResponse Views::Queue(uint32_t limit, size_t count, const JobId& after,
                                  const Time& now) const {
  if (limit == 0) limit = limits::kJobsPerList;
  const JobQueue& queue = scheduler_.queue();
  v1::ListJobsRequest request;
  request.set_state(v1::QUEUED);
  std::vector<const Job*> jobs = ListJobs(jobs_, request);
  std::reverse(jobs.begin(), jobs.end());  // oldest first
  v1::GetQueueResponse response;
  response.set_total(static_cast<uint32_t>(jobs.size()));

  const bool from_begin = after.value().empty();
  std::vector<JobId> ids = scheduler_.First(from_begin ? limit : queue.size());
  for (const Job* const job : jobs) {
    if (queue.Find(job->id()) == nullptr) ids.push_back(job->id());
  }
  const auto found = std::find(ids.begin(), ids.end(), after);
  const size_t begin = from_begin           ? 0
                       : found == ids.end() ? std::min(count, ids.size())
                                            : found - ids.begin() + 1;
  ids.resize(std::min(ids.size(), begin + limit));
  for (size_t i = begin; i < ids.size(); ++i) {
    const JobQueue::Entry* const entry = queue.Find(ids[i]);
    *response.add_jobs() =
        entry == nullptr ? WaitingView(jobs_.at(ids[i]), now) : QueuedView(*entry, now);
  }
  std::erase_if(ids, [&queue](const JobId& id) { return queue.Find(id) == nullptr; });
  if (ids.size() > kForecastJobs) ids.resize(kForecastJobs);
  const std::vector<StartEstimate> estimates =
      EstimatesOf(ids, jobs_, scheduler_, nodes_.all(), now);
  for (size_t i = begin; i < estimates.size(); ++i) {
    v1::QueuedJob& queued = *response.mutable_jobs(static_cast<int>(i - begin));
    queued.mutable_job()->set_estimate_basis(estimates[i].basis);
    if (!estimates[i].in.has_value()) continue;
    *queued.mutable_estimated_start_time() = StartOf(*estimates[i].in, now);
  }
  for (v1::OwnerUse& use : owners_.Uses(now)) *response.add_owners() = std::move(use);
  *response.mutable_ageing() = ToProto(scheduler_.options().ageing);
  *response.mutable_half_life() = ToProto(scheduler_.options().half_life);
  return response;
}

v1::Forecast Views::ForecastJob(const v1::JobSpec& spec, const Actor& actor,
                                const Time& now) const {
  const Job job = MakeJob(spec, actor, now);
  v1::Forecast view;
  const auto add_node_blockers = [&] {
    for (v1::WaitedFor& blocker : NodeBlockers(spec.resources(), scheduler_, nodes_.all(), now)) {
      *view.add_blockers() = std::move(blocker);
    }
  };
  if (!UnplaceableReason(spec.resources(), nodes_.all()).empty()) {
    view.set_queue_position(static_cast<uint32_t>(scheduler_.queue().size()) + 1);
    view.set_estimate_basis("unknown: the cluster is too small for it");
    add_node_blockers();
    return view;
  }
  const Scheduler::Forecast forecast =
      scheduler_.ForecastOf(job, nodes_, [&](const StartRequest& request) {
        StartResult result;
        const v1::Resources& resources = request.resources;
        for (const v1::NodePlacement& placement :
             Place(resources, nodes_.all(), Offers::kNow, resources.share_device())) {
          result.outcome = StartResult::Outcome::kStarted;
          uint32_t slots = 0;
          for (const v1::RankRecord& rank : placement.ranks()) slots += rank.slots_size();
          result.slots.emplace_back(NodeName(placement.node()), slots);
          view.add_nodes(placement.node());
        }
        return result;
      });
  const v1::Dependencies& after = spec.after();
  const bool depends = after.ok_size() + after.failed_size() + after.any_size() > 0;
  if (forecast.started && !depends) {
    view.set_starts_now(true);
    view.set_estimate_basis("free slots");
    *view.mutable_estimated_start_time() = ToProto(now.wall);
    return view;
  }
  view.clear_nodes();
  if (depends) {
    view.add_blockers()->set_reason("it waits for the jobs in `after` before it joins the queue");
  }
  view.set_queue_position(forecast.position);
  for (const Preemption& preemption : forecast.plan.preemptions) {
    if (preemption.job != job.id()) continue;
    for (const JobId& victim : preemption.victims) view.add_preempted_job_ids(victim.value());
  }
  const Reservation* const kept = forecast.plan.FindReservation(job.id());
  if (depends) {
    view.set_estimate_basis("unknown: it depends on other jobs");
  } else if (kept != nullptr && kept->from < SteadyTime::Infinite()) {
    *view.mutable_estimated_start_time() = StartOf(kept->from - now.steady, now);
    view.set_estimate_basis("the latest ends of the jobs on the nodes that it would get");
  } else {
    const StartEstimate start =
        EstimateAt(forecast.position, job, jobs_, scheduler_, nodes_.all(), now);
    if (start.in.has_value()) *view.mutable_estimated_start_time() = StartOf(*start.in, now);
    view.set_estimate_basis(start.basis);
  }
  const QueueItem item = QueueItemOf(job, now);
  for (v1::WaitedFor& blocker : QueueBlockers(job.id(), actor.name, forecast.position, item.length,
                                              forecast.verdict, forecast.plan, scheduler_, now)) {
    *view.add_blockers() = std::move(blocker);
  }
  add_node_blockers();
  return view;
}

}  // namespace muster::core
