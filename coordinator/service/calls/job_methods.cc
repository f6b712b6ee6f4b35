// ClusterService: methods about jobs and arrays of jobs.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/grpc/status.h"
#include "common/status.h"
#include "common/time/proto_time.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/calls/cluster_service.h"
#include "coordinator/service/calls/page.h"
#include "coordinator/service/calls/watch_job_call.h"
#include "coordinator/service/checks/validate.h"
#include "coordinator/service/relay/exec_call.h"
#include "coordinator/service/relay/read_files_call.h"
#include "coordinator/service/relay/read_log_call.h"

namespace muster::service {
namespace {

// A stream that only ends with a status.
template <typename Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

// Takes the job from the reply to a change of one.
CoreCalls::Take JobInto(v1::Job* response) {
  return [response](core::Reply reply) {
    *response = *std::move(reply.job);
    return absl::OkStatus();
  };
}

template <typename Request>
std::optional<absl::Duration> GracePeriodOf(const Request& request) {
  if (!request.has_grace_period()) return std::nullopt;
  return FromProto(request.grace_period());
}

}  // namespace

grpc::ServerUnaryReactor* ClusterServiceImpl::GetJob(grpc::CallbackServerContext* context,
                                                     const v1::GetJobRequest* request,
                                                     v1::Job* response) {
  return calls_.Query(
      context, ValidateJobName(request->job_id()),
      [=](core::Core& core, const core::Actor& actor, const Time& now) -> absl::Status {
        ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(request->job_id()));
        ASSIGN_OR_RETURN(*response, core.GetJob(id, /*detailed=*/true, now));
        core::HidePrivate(actor, *response);
        return CheckSize(*response);
      });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetJobHistory(grpc::CallbackServerContext* context,
                                                            const v1::GetJobHistoryRequest* request,
                                                            v1::JobHistory* response) {
  return calls_.Query(
      context, ValidateJobName(request->job_id()),
      [=](core::Core& core, const core::Actor& actor, const Time& now) -> absl::Status {
        ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(request->job_id()));
        ASSIGN_OR_RETURN(*response, core.GetJobHistory(id, request->max_points(), now));
        core::HidePrivate(actor, *response->mutable_job());
        return CheckSize(*response);
      });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ListJobs(grpc::CallbackServerContext* context,
                                                       const v1::ListJobsRequest* request,
                                                       v1::ListJobsResponse* response) {
  return calls_.Query(
      context, absl::OkStatus(),
      [=](core::Core& core, const core::Actor& actor, const Time& /*now*/) -> absl::Status {
        ASSIGN_OR_RETURN(Page page, Page::Open("jobs", request->page_token(), request->limit()));
        v1::ListJobsRequest selection = *request;
        if (request->mine()) selection.set_owner(actor.name);
        for (const core::Core::Listed& listed : core.Select(selection)) {
          const std::string position = Page::Descending(listed.sequence);
          if (!page.IsAfter(position)) continue;
          if (listed.is_array) {
            ASSIGN_OR_RETURN(v1::JobArray array, core.GetArray(listed.id));
            if (!page.Add(array, position)) break;
            *response->add_arrays() = std::move(array);
          } else {
            v1::Job job = *core.ListEntry(JobId(listed.id));
            core::HidePrivate(actor, job);
            if (!page.Add(job, position)) break;
            *response->add_jobs() = std::move(job);
          }
        }
        response->set_next_page_token(page.next_token());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetArray(grpc::CallbackServerContext* context,
                                                       const v1::GetArrayRequest* request,
                                                       v1::GetArrayResponse* response) {
  return calls_.Query(
      context, ValidateJobName(request->array_id()),
      [=](core::Core& core, const core::Actor& actor, const Time& /*now*/) -> absl::Status {
        ASSIGN_OR_RETURN(Page page, Page::Open("tasks", request->page_token()));
        ASSIGN_OR_RETURN(*response->mutable_array(), core.GetArray(request->array_id()));
        for (const JobId& id : core.ListTasks(response->array().array_id())) {
          v1::Job task = *core.ListEntry(id);
          const std::string position = Page::Ascending(task.array_index());
          if (!page.IsAfter(position)) continue;
          core::HidePrivate(actor, task);
          if (!page.Add(task, position)) break;
          *response->add_tasks() = std::move(task);
        }
        response->set_next_page_token(page.next_token());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ListEvents(grpc::CallbackServerContext* context,
                                                         const v1::ListEventsRequest* request,
                                                         v1::ListEventsResponse* response) {
  return calls_.Query(
      context, ValidateJobName(request->job_id()),
      [=](core::Core& core, const core::Actor& actor, const Time& /*now*/) -> absl::Status {
        ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(request->job_id()));
        ASSIGN_OR_RETURN(std::vector<v1::JobEvent> events,
                         core.ListEvents(id, request->after_sequence()));
        ASSIGN_OR_RETURN(Page page, Page::Open("events", /*token=*/""));
        const bool may_see_all = core::MayUse(*core.ListEntry(id), actor);
        for (v1::JobEvent& event : events) {
          if (!may_see_all) core::RemovePrivate(event);
          // The caller requests the others with after_sequence.
          response->set_more(!page.Add(event, Page::Ascending(event.sequence())));
          if (response->more()) break;
          *response->add_events() = std::move(event);
        }
        return absl::OkStatus();
      });
}

grpc::ServerWriteReactor<v1::Job>* ClusterServiceImpl::WatchJob(
    grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) {
  const absl::Status valid = ValidateJobName(request->job_id());
  if (!valid.ok()) return new RefusedStream<v1::Job>(valid);
  absl::StatusOr<AdmittedCaller> caller = Admit(*context, watches_);
  if (!caller.ok()) return new RefusedStream<v1::Job>(caller.status());
  return WatchJobCall::Start(*std::move(caller), request->job_id(), loop_, watchers_);
}

grpc::ServerWriteReactor<v1::LogChunk>* ClusterServiceImpl::ReadLog(
    grpc::CallbackServerContext* context, const v1::ReadLogRequest* request) {
  const absl::Status valid = ValidateReadLog(*request);
  if (!valid.ok()) return new RefusedStream<v1::LogChunk>(valid);
  absl::StatusOr<AdmittedCaller> caller = Admit(*context, log_streams_);
  if (!caller.ok()) return new RefusedStream<v1::LogChunk>(caller.status());
  return ReadLogCall::Start(*std::move(caller), *request, loop_, watchers_, logs_);
}

grpc::ServerWriteReactor<v1::ArchiveChunk>* ClusterServiceImpl::ReadFiles(
    grpc::CallbackServerContext* context, const v1::ReadFilesRequest* request) {
  const absl::Status valid = ValidateReadFiles(*request);
  if (!valid.ok()) return new RefusedStream<v1::ArchiveChunk>(valid);
  return ReadFilesCall::Start(Admit(*context, copies_), *request, loop_, transfers_.files);
}

grpc::ServerBidiReactor<v1::ExecInput, v1::ExecOutput>* ClusterServiceImpl::Exec(
    grpc::CallbackServerContext* context) {
  return ExecCall::Start(Admit(*context, execs_), loop_, transfers_.exec);
}

grpc::ServerUnaryReactor* ClusterServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                        const v1::CancelJobRequest* request,
                                                        v1::Job* response) {
  return calls_.Change(
      context, ValidateCancel(request->job_id(), request->grace_period()),
      core::CancelJob{.job = request->job_id(), .grace_period = GracePeriodOf(*request)},
      JobInto(response));
}

grpc::ServerUnaryReactor* ClusterServiceImpl::CancelArray(grpc::CallbackServerContext* context,
                                                          const v1::CancelArrayRequest* request,
                                                          v1::JobArray* response) {
  return calls_.Change(
      context, ValidateCancel(request->array_id(), request->grace_period()),
      core::CancelArray{.array = request->array_id(), .grace_period = GracePeriodOf(*request)},
      [response](core::Reply reply) {
        if (reply.array.has_value()) *response = *std::move(reply.array);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::HoldJob(grpc::CallbackServerContext* context,
                                                      const v1::HoldJobRequest* request,
                                                      v1::Job* response) {
  return calls_.Change(context, ValidateJobName(request->job_id()),
                       core::HoldJob{.job = request->job_id()}, JobInto(response));
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ReleaseJob(grpc::CallbackServerContext* context,
                                                         const v1::ReleaseJobRequest* request,
                                                         v1::Job* response) {
  return calls_.Change(context, ValidateJobName(request->job_id()),
                       core::ReleaseJob{.job = request->job_id()}, JobInto(response));
}

grpc::ServerUnaryReactor* ClusterServiceImpl::RequeueJob(grpc::CallbackServerContext* context,
                                                         const v1::RequeueJobRequest* request,
                                                         v1::Job* response) {
  return calls_.Change(context, ValidateJobName(request->job_id()),
                       core::RequeueJob{.job = request->job_id()}, JobInto(response));
}

grpc::ServerUnaryReactor* ClusterServiceImpl::CheckpointJob(grpc::CallbackServerContext* context,
                                                            const v1::CheckpointJobRequest* request,
                                                            v1::Job* response) {
  return calls_.Change(context, ValidateJobName(request->job_id()),
                       core::CheckpointJob{.job = request->job_id()}, JobInto(response));
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ShareJob(grpc::CallbackServerContext* context,
                                                       const v1::ShareJobRequest* request,
                                                       v1::Job* response) {
  return calls_.Change(context, ValidateJobName(request->job_id()),
                       core::ShareJob{.job = request->job_id(), .shared = request->shared()},
                       JobInto(response));
}

grpc::ServerUnaryReactor* ClusterServiceImpl::RemoveJob(grpc::CallbackServerContext* context,
                                                        const v1::RemoveJobRequest* request,
                                                        v1::RemoveJobResponse* /*response*/) {
  return calls_.Change(context, ValidateJobName(request->job_id()),
                       core::RemoveJob{.job = request->job_id()});
}

}  // namespace muster::service
