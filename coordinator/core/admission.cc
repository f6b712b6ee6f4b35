#include "coordinator/core/admission.h"

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

// Sets the reason unless the job, of a store that was just read, has it already.
void SetReason(Job& job, absl::string_view reason, std::string message, JobTable& jobs) {
  if (job.status.reason() == reason && job.status.message() == message) return;
  jobs.SetReason(job, reason, std::move(message));
}

std::string LimitText(const Job& job) {
  return absl::StrCat("array ", job.status.array_id(), " runs at most ", job.array_concurrency,
                      job.array_concurrency == 1 ? " task" : " tasks", " at the same time");
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

}  // namespace

void Admission::Enter(Job& job) {
  if (!job.after.empty()) {
    SetReason(job, reasons::kDependency, DependencyText(job.after), jobs_);
    return;
  }
  if (!jobs_.arrays().TakePlace(job)) {
    SetReason(job, reasons::kArrayLimit, LimitText(job), jobs_);
    return;
  }
  if (job.status.reason() == reasons::kDependency || job.status.reason() == reasons::kArrayLimit) {
    SetReason(job, reasons::kWaitingForResources, "waiting in the queue for resources", jobs_);
  }
  scheduler_.Add(job);
}

void Admission::Leave(Job& job) {
  scheduler_.Remove(job);
  const std::optional<JobId> next = jobs_.arrays().Release(job);
  if (next.has_value()) Enter(jobs_.at(*next));
}

std::vector<Admission::Hopeless> Admission::SettleDependencies() {
  std::vector<Hopeless> hopeless;
  for (const Ended& ended : jobs_.TakeEnded()) {
    for (const JobId& id : jobs_.dependents().Take(ended.id)) {
      Job& job = jobs_.at(id);
      std::string why = Settle(ended, job.after);
      jobs_.MarkJob(job);
      if (!why.empty()) {
        hopeless.push_back({id, std::move(why)});
      } else if (job.state() == v1::QUEUED) {
        Enter(job);
      }
    }
  }
  return hopeless;
}

std::optional<v1::Wait> AdmissionWait(const Job& job, const JobTable& jobs, Time now) {
  if (job.state() != v1::QUEUED) return std::nullopt;
  v1::Wait wait;
  *wait.mutable_since() = ToProto(now.steady - job.state_since);
  if (!job.after.empty()) {
    wait.set_what("dependency");
    AddMissing(job.after.ok, "succeed", jobs, wait);
    AddMissing(job.after.failed, "fail", jobs, wait);
    AddMissing(job.after.any, "end", jobs, wait);
    return wait;
  }
  const std::string limit = jobs.arrays().WaitText(job);
  if (limit.empty()) return std::nullopt;
  wait.set_what("array");
  wait.add_missing()->set_reason(limit);
  return wait;
}

}  // namespace muster::core
