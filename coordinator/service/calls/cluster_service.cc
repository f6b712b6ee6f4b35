#include "coordinator/service/calls/cluster_service.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/proto_time.h"
#include "common/random_id.h"
#include "common/sha256.h"
#include "common/status.h"
#include "common/version.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/core/scheduler/natural_order.h"
#include "coordinator/service/auth/caller.h"
#include "coordinator/service/calls/array_tasks.h"
#include "coordinator/service/calls/page.h"
#include "coordinator/service/calls/watch_job_call.h"
#include "coordinator/service/checks/validate.h"
#include "coordinator/service/loop/unary_call.h"
#include "coordinator/service/relay/exec_call.h"
#include "coordinator/service/relay/read_files_call.h"
#include "coordinator/service/relay/read_log_call.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "spec/files.h"
#include "spec/spec.h"

namespace muster::service {
namespace {

// With five base-32 characters, one draw in 300 collides when kJobs jobs have the same name.
constexpr int kIdAttempts = 8;

// A stream that only ends with a status.
template <typename Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

// SHA-256 of the spec as submitted. Serialized deterministically: the order of map entries varies.
std::string DigestOf(const v1::JobSpec& spec) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  return Sha256Hex(bytes);
}

}  // namespace

grpc::ServerUnaryReactor* ClusterServiceImpl::Answer(grpc::ServerUnaryReactor* reactor, Read read) {
  const bool queued =
      loop_.PushQuery([reactor, read = std::move(read)](core::Core& core, const Time& now) mutable {
        const absl::Status status = read(core, now);
        return Release([reactor, status] { Finish(reactor, status); });
      });
  return queued ? reactor : Finish(reactor, ShuttingDown());
}

absl::StatusOr<core::Actor> ClusterServiceImpl::ActorOf(
    const grpc::CallbackServerContext& context) {
  return authorizer_.Identify(CallerOf(context));
}

absl::StatusOr<AdmittedCaller> ClusterServiceImpl::Admit(const grpc::CallbackServerContext& context,
                                                         CallerLimit& limit) {
  ASSIGN_OR_RETURN(core::Actor actor, ActorOf(context));
  return limit.Admit(std::move(actor));
}

template <typename Make>
grpc::ServerUnaryReactor* ClusterServiceImpl::Change(grpc::CallbackServerContext* context,
                                                     const std::string& job, v1::Job* response,
                                                     Make make) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateJobName(job);
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  const auto complete = [reactor, response](core::Reply reply) {
    if (reply.job.ok() && response != nullptr) *response = *std::move(reply.job);
    Finish(reactor, reply.job.status());
  };
  const bool queued = loop_.PushQuery([=, this](core::Core& core, const Time& now) -> Release {
    const absl::StatusOr<JobId> id = core.ResolveJob(job);
    if (!id.ok()) return [reactor, status = id.status()] { Finish(reactor, status); };
    const RequestId request = requests_.Add(complete);
    if (!loop_.Push(make(request, *id, *actor))) {
      requests_.Complete({request, ShuttingDown(), false});
    }
    return nullptr;
  });
  return queued ? reactor : Finish(reactor, ShuttingDown());
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ChangeNode(grpc::ServerUnaryReactor* reactor,
                                                         const std::string& node, core::Event event,
                                                         v1::Node* response) {
  if (!loop_.Push(std::move(event))) return Finish(reactor, ShuttingDown());
  // The query is queued behind the event, and its answer is released once the event's writes are on
  // disk.
  return AnswerNode(reactor, node, response);
}

grpc::ServerUnaryReactor* ClusterServiceImpl::AnswerNode(grpc::ServerUnaryReactor* reactor,
                                                         const std::string& node,
                                                         v1::Node* response) {
  return Answer(reactor, [=](core::Core& core, const Time& now) -> absl::Status {
    ASSIGN_OR_RETURN(*response, core.GetNode(NodeName(node), now));
    return absl::OkStatus();
  });
}

JobId ClusterServiceImpl::DrawJobId(const std::string& name) {
  // Omits letters that look like digits.
  static constexpr char kDigits[] = "0123456789abcdefghjkmnpqrstvwxyz";
  return JobId(absl::StrCat(name, "-", RandomId(5, kDigits)));
}

grpc::ServerUnaryReactor* ClusterServiceImpl::SubmitJob(grpc::CallbackServerContext* context,
                                                        const v1::SubmitJobRequest* request,
                                                        v1::SubmitJobResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  v1::JobSpec spec = request->spec();
  std::vector<core::ArrayTask> tasks;
  const absl::Status valid = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckProtocolVersion(request->protocol_version(), 0, "client"));
    RETURN_IF_ERROR(ValidateSubmit(*request));
    spec::ApplyDefaults(spec);
    if (spec.has_array()) {
      ASSIGN_OR_RETURN(tasks, ExpandTasks(request->spec()));
    } else {
      RETURN_IF_ERROR(spec::Validate(spec));
      RETURN_IF_ERROR(spec::CheckPlaceholders(spec));
    }
    return spec::CheckUploadedFiles(spec);
  }();
  if (!valid.ok()) return Finish(reactor, valid);
  absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  if (request->validate_only()) {
    return Answer(reactor,
                  [=, spec = std::move(spec), actor = *std::move(actor)](
                      core::Core& core, const Time& now) mutable -> absl::Status {
                    RETURN_IF_ERROR(core.CheckSubmit(spec, tasks, actor));
                    *response->mutable_forecast() = core.ForecastJob(spec, actor, now);
                    std::string warning = core.LimitsWarning(spec);
                    if (!warning.empty()) response->mutable_job()->add_warnings(warning);
                    *response->mutable_job()->mutable_spec() = std::move(spec);
                    return absl::OkStatus();
                  });
  }
  core::SubmitJob event;
  event.spec = std::move(spec);
  event.tasks = std::move(tasks);
  event.idempotency_key = request->idempotency_key();
  event.actor = *std::move(actor);
  event.spec_digest = DigestOf(request->spec());
  if (event.spec.files().empty()) {
    Submit(reactor, std::move(event), response, kIdAttempts);
    return reactor;
  }
  absl::flat_hash_set<std::string> digests;
  for (const v1::FileSpec& file : event.spec.files()) digests.insert(file.sha256());
  const core::Actor submitter = event.actor;
  WithFiles(reactor, submitter, std::move(digests),
            [=, this, event = std::move(event)](const files::FileUser& user) mutable {
              const absl::Status stored =
                  files_.store->CheckStored(event.spec, user, files_.clock().wall);
              if (!stored.ok()) {
                Finish(reactor, stored);
                return;
              }
              Submit(reactor, std::move(event), response, kIdAttempts);
            });
  return reactor;
}

void ClusterServiceImpl::WithFiles(grpc::ServerUnaryReactor* reactor, const core::Actor& actor,
                                   absl::flat_hash_set<std::string> digests, UseFiles use) {
  const bool queued = loop_.PushQuery([this, actor, digests = std::move(digests),
                                       use = std::move(use)](core::Core& core,
                                                             const Time&) mutable -> Release {
    files::FileUser user{actor.name, core.UsableFiles(actor, digests)};
    return [this, user = std::move(user), use = std::move(use)]() mutable {
      files_.thread.Post([user = std::move(user), use = std::move(use)]() mutable { use(user); });
    };
  });
  if (!queued) Finish(reactor, ShuttingDown());
}

void ClusterServiceImpl::Submit(grpc::ServerUnaryReactor* reactor, core::SubmitJob event,
                                v1::SubmitJobResponse* response, int attempts) {
  event.job_id = DrawJobId(event.spec.name());
  event.request = requests_.Add([=, this](core::Reply reply) {
    if (absl::IsAborted(reply.job.status()) && attempts > 1) {
      Submit(reactor, event, response, attempts - 1);
      return;
    }
    if (reply.job.ok()) *response->mutable_job() = *std::move(reply.job);
    if (reply.array.has_value()) *response->mutable_array() = *std::move(reply.array);
    response->set_already_existed(reply.already_existed);
    Finish(reactor, reply.job.status());
  });
  const RequestId id = event.request;
  if (!loop_.Push(std::move(event))) requests_.Complete({id, ShuttingDown(), false});
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetJob(grpc::CallbackServerContext* context,
                                                     const v1::GetJobRequest* request,
                                                     v1::Job* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateJobName(request->job_id());
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time& now) -> absl::Status {
    ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(request->job_id()));
    ASSIGN_OR_RETURN(*response, core.GetJob(id, /*detailed=*/true, now));
    core::HidePrivate(*actor, *response);
    return CheckSize(*response);
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetJobHistory(grpc::CallbackServerContext* context,
                                                            const v1::GetJobHistoryRequest* request,
                                                            v1::JobHistory* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateJobName(request->job_id());
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time& now) -> absl::Status {
    ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(request->job_id()));
    ASSIGN_OR_RETURN(*response, core.GetJobHistory(id, request->max_points(), now));
    core::HidePrivate(*actor, *response->mutable_job());
    return CheckSize(*response);
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ListJobs(grpc::CallbackServerContext* context,
                                                       const v1::ListJobsRequest* request,
                                                       v1::ListJobsResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time& /*now*/) -> absl::Status {
    ASSIGN_OR_RETURN(Page page, Page::Open("jobs", request->page_token(), request->limit()));
    v1::ListJobsRequest selection = *request;
    if (request->mine()) selection.set_owner(actor->name);
    for (const core::Core::Listed& listed : core.Select(selection)) {
      const std::string position = Page::Descending(listed.sequence);
      if (!page.IsAfter(position)) continue;
      if (listed.is_array) {
        ASSIGN_OR_RETURN(v1::JobArray array, core.GetArray(listed.id));
        if (!page.Add(array, position)) break;
        *response->add_arrays() = std::move(array);
      } else {
        v1::Job job = core.ListEntry(JobId(listed.id));
        core::HidePrivate(*actor, job);
        if (!page.Add(job, position)) break;
        *response->add_jobs() = std::move(job);
      }
    }
    response->set_next_page_token(page.next_token());
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

grpc::ServerUnaryReactor* ClusterServiceImpl::ListEvents(grpc::CallbackServerContext* context,
                                                         const v1::ListEventsRequest* request,
                                                         v1::ListEventsResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateJobName(request->job_id());
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time& /*now*/) -> absl::Status {
    ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(request->job_id()));
    ASSIGN_OR_RETURN(std::vector<v1::JobEvent> events,
                     core.ListEvents(id, request->after_sequence()));
    ASSIGN_OR_RETURN(Page page, Page::Open("events", /*token=*/""));
    const bool may_see_all = core::MayUse(core.ListEntry(id), *actor);
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

grpc::ServerUnaryReactor* ClusterServiceImpl::CancelJob(grpc::CallbackServerContext* context,
                                                        const v1::CancelJobRequest* request,
                                                        v1::Job* response) {
  const absl::Status valid = ValidateCancel(*request);
  if (!valid.ok()) return Finish(context->DefaultReactor(), valid);
  std::optional<absl::Duration> grace_period;
  if (request->has_grace_period()) grace_period = FromProto(request->grace_period());
  return Change(context, request->job_id(), response,
                [grace_period](RequestId id, const JobId& job, const core::Actor& actor) {
                  return core::CancelJob{id, job, grace_period, actor};
                });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::HoldJob(grpc::CallbackServerContext* context,
                                                      const v1::HoldJobRequest* request,
                                                      v1::Job* response) {
  return Change(context, request->job_id(), response,
                [](RequestId id, const JobId& job, const core::Actor& actor) {
                  return core::HoldJob{id, job, actor};
                });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ReleaseJob(grpc::CallbackServerContext* context,
                                                         const v1::ReleaseJobRequest* request,
                                                         v1::Job* response) {
  return Change(context, request->job_id(), response,
                [](RequestId id, const JobId& job, const core::Actor& actor) {
                  return core::ReleaseJob{id, job, actor};
                });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::RequeueJob(grpc::CallbackServerContext* context,
                                                         const v1::RequeueJobRequest* request,
                                                         v1::Job* response) {
  return Change(context, request->job_id(), response,
                [](RequestId id, const JobId& job, const core::Actor& actor) {
                  return core::RequeueJob{id, job, actor};
                });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::CheckpointJob(grpc::CallbackServerContext* context,
                                                            const v1::CheckpointJobRequest* request,
                                                            v1::Job* response) {
  return Change(context, request->job_id(), response,
                [](RequestId id, const JobId& job, const core::Actor& actor) {
                  return core::CheckpointJob{id, job, actor};
                });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ShareJob(grpc::CallbackServerContext* context,
                                                       const v1::ShareJobRequest* request,
                                                       v1::Job* response) {
  return Change(
      context, request->job_id(), response,
      [shared = request->shared()](RequestId id, const JobId& job, const core::Actor& actor) {
        return core::ShareJob{id, job, shared, actor};
      });
}

grpc::ServerWriteReactor<v1::LogChunk>* ClusterServiceImpl::ReadLog(
    grpc::CallbackServerContext* context, const v1::ReadLogRequest* request) {
  const absl::Status valid = ValidateReadLog(*request);
  if (!valid.ok()) return new RefusedStream<v1::LogChunk>(valid);
  absl::StatusOr<AdmittedCaller> caller = Admit(*context, log_streams_);
  if (!caller.ok()) return new RefusedStream<v1::LogChunk>(caller.status());
  return ReadLogCall::Start(*std::move(caller), *request, loop_, watchers_, logs_);
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ListNodes(grpc::CallbackServerContext* context,
                                                        const v1::ListNodesRequest* request,
                                                        v1::ListNodesResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time& now) -> absl::Status {
    ASSIGN_OR_RETURN(Page page, Page::Open("nodes", request->page_token()));
    for (v1::Node& node : core.ListNodes(now)) *response->add_nodes() = std::move(node);
    page.Keep(
        *response->mutable_nodes(), [](const v1::Node& node) { return node.name(); },
        core::NaturalLess);
    for (v1::Node& node : *response->mutable_nodes()) core::HidePrivate(*actor, node);
    response->set_next_page_token(page.next_token());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetNode(grpc::CallbackServerContext* context,
                                                      const v1::GetNodeRequest* request,
                                                      v1::Node* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateNodeName(request->name());
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time& now) -> absl::Status {
    ASSIGN_OR_RETURN(*response, core.GetNode(NodeName(request->name()), now));
    core::HidePrivate(*actor, *response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::CordonNode(grpc::CallbackServerContext* context,
                                                         const v1::CordonNodeRequest* request,
                                                         v1::Node* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateCordon(request->name(), request->reason());
  if (!valid.ok()) return Finish(reactor, valid);
  return ChangeNode(reactor, request->name(),
                    core::CordonNode{NodeName(request->name()), request->reason()}, response);
}

grpc::ServerUnaryReactor* ClusterServiceImpl::UncordonNode(grpc::CallbackServerContext* context,
                                                           const v1::UncordonNodeRequest* request,
                                                           v1::Node* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateNodeName(request->name());
  if (!valid.ok()) return Finish(reactor, valid);
  return ChangeNode(reactor, request->name(), core::UncordonNode{NodeName(request->name())},
                    response);
}

grpc::ServerUnaryReactor* ClusterServiceImpl::DrainNode(grpc::CallbackServerContext* context,
                                                        const v1::DrainNodeRequest* request,
                                                        v1::Node* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateDrain(*request);
  if (!valid.ok()) return Finish(reactor, valid);
  core::CordonNode drain{NodeName(request->name()), request->reason(), /*drain=*/true};
  if (request->has_deadline()) drain.deadline = FromProto(request->deadline());
  return ChangeNode(reactor, request->name(), std::move(drain), response);
}

grpc::ServerUnaryReactor* ClusterServiceImpl::TestNode(grpc::CallbackServerContext* context,
                                                       const v1::TestNodeRequest* request,
                                                       v1::Node* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateNodeName(request->name());
  if (!valid.ok()) return Finish(reactor, valid);
  const RequestId id = requests_.Add([=, this](core::Reply reply) {
    if (!reply.job.ok()) {
      Finish(reactor, reply.job.status());
    } else {
      AnswerNode(reactor, request->name(), response);
    }
  });
  if (!loop_.Push(core::TestNode{id, NodeName(request->name())})) {
    requests_.Complete({id, ShuttingDown(), false});
  }
  return reactor;
}

grpc::ServerUnaryReactor* ClusterServiceImpl::FindMissingFiles(
    grpc::CallbackServerContext* context, const v1::FindMissingFilesRequest* request,
    v1::FindMissingFilesResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateFindMissingFiles(*request);
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  WithFiles(
      reactor, *actor, {request->sha256().begin(), request->sha256().end()},
      [=, this](const files::FileUser& user) {
        const std::vector<std::string> digests(request->sha256().begin(), request->sha256().end());
        for (std::string& digest : files_.store->Missing(digests, user, files_.clock().wall)) {
          *response->add_sha256() = std::move(digest);
        }
        Finish(reactor, absl::OkStatus());
      });
  return reactor;
}

grpc::ServerReadReactor<v1::UploadFileRequest>* ClusterServiceImpl::UploadFile(
    grpc::CallbackServerContext* context, v1::UploadFileResponse* /*response*/) {
  return StartUploadFile(files_, Admit(*context, uploads_));
}

template <typename Event>
grpc::ServerUnaryReactor* ClusterServiceImpl::RunNodeRequest(grpc::CallbackServerContext& context,
                                                             Event event) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  const absl::Status valid = ValidateNodeName(event.node.value());
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = ActorOf(context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  const RequestId id =
      requests_.Add([reactor](core::Reply reply) { Finish(reactor, reply.job.status()); });
  event.request = id;
  event.actor = *actor;
  if (!loop_.Push(std::move(event))) requests_.Complete({id, ShuttingDown(), false});
  return reactor;
}

grpc::ServerUnaryReactor* ClusterServiceImpl::RemoveNode(grpc::CallbackServerContext* context,
                                                         const v1::RemoveNodeRequest* request,
                                                         v1::RemoveNodeResponse* /*response*/) {
  return RunNodeRequest(
      *context, core::RemoveNode{.node = NodeName(request->name()), .force = request->force()});
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ConfirmNodeLost(
    grpc::CallbackServerContext* context, const v1::ConfirmNodeLostRequest* request,
    v1::ConfirmNodeLostResponse* /*response*/) {
  return RunNodeRequest(*context, core::ConfirmNodeLost{.node = NodeName(request->name())});
}

grpc::ServerUnaryReactor* ClusterServiceImpl::RecoverJobs(grpc::CallbackServerContext* context,
                                                          const v1::RecoverJobsRequest* request,
                                                          v1::RecoverJobsResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  core::RecoverJobs event;
  event.discard = request->discard();
  event.actor = *actor;
  for (const std::string& name : request->nodes()) {
    const absl::Status valid = ValidateNodeName(name);
    if (!valid.ok()) return Finish(reactor, valid);
    event.nodes.emplace_back(name);
  }
  event.request = requests_.Add([reactor, response](core::Reply reply) {
    *response = std::move(reply.recovered);
    Finish(reactor, reply.job.status());
  });
  const RequestId id = event.request;
  if (!loop_.Push(std::move(event))) requests_.Complete({id, ShuttingDown(), false});
  return reactor;
}

grpc::ServerUnaryReactor* ClusterServiceImpl::RemoveJob(grpc::CallbackServerContext* context,
                                                        const v1::RemoveJobRequest* request,
                                                        v1::RemoveJobResponse* /*response*/) {
  return Change(context, request->job_id(), /*response=*/nullptr,
                [](RequestId id, const JobId& job, const core::Actor& actor) {
                  return core::RemoveJob{id, job, actor};
                });
}

grpc::ServerBidiReactor<v1::ExecInput, v1::ExecOutput>* ClusterServiceImpl::Exec(
    grpc::CallbackServerContext* context) {
  return ExecCall::Start(Admit(*context, execs_), loop_, transfers_.exec);
}

grpc::ServerWriteReactor<v1::ArchiveChunk>* ClusterServiceImpl::ReadFiles(
    grpc::CallbackServerContext* context, const v1::ReadFilesRequest* request) {
  const absl::Status valid = ValidateReadFiles(*request);
  if (!valid.ok()) return new RefusedStream<v1::ArchiveChunk>(valid);
  return ReadFilesCall::Start(Admit(*context, copies_), *request, loop_, transfers_.files);
}

grpc::ServerUnaryReactor* ClusterServiceImpl::CreatePageLogin(
    grpc::CallbackServerContext* context, const v1::CreatePageLoginRequest* /*request*/,
    v1::CreatePageLoginResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  const absl::Status reachable = page_logins_.CheckReachable(PeerHost(context->peer()));
  if (!reachable.ok()) return Finish(reactor, reachable);
  Authorizer::Caller caller = CallerOf(*context);
  caller.browser = true;
  response->set_code(page_logins_.codes.Add(actor->name, std::move(caller)));
  *response->mutable_expire_time() = ToProto(files_.clock().wall + page_logins_.codes.validity());
  response->set_port(page_logins_.address.port);
  response->set_tls(page_logins_.tls);
  return Finish(reactor, absl::OkStatus());
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetVersion(grpc::CallbackServerContext* context,
                                                         const v1::GetVersionRequest* /*request*/,
                                                         v1::GetVersionResponse* response) {
  response->set_software_version(kSoftwareVersion);
  response->set_protocol_version(kProtocolVersion);
  return Answer(context->DefaultReactor(), [=](core::Core& core, const Time&) {
    response->set_cluster_id(core.store().cluster_id);
    response->set_commit_index(core.store().commit_index);
    return absl::OkStatus();
  });
}

}  // namespace muster::service
