// ClusterService: submission of jobs and their files.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random_id.h"
#include "common/sha256.h"
#include "common/status.h"
#include "coordinator/service/calls/cluster_service.h"
#include "coordinator/service/checks/validate.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "spec/array.h"
#include "spec/files.h"
#include "spec/spec.h"

namespace muster::service {
namespace {

// With five base-32 characters, one draw in 300 collides when kJobs jobs have the same name.
constexpr int kIdAttempts = 8;

JobId DrawJobId(const std::string& name) {
  // Omits letters that look like digits.
  static constexpr char kDigits[] = "0123456789abcdefghjkmnpqrstvwxyz";
  return JobId(absl::StrCat(name, "-", RandomId(5, kDigits)));
}

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

absl::flat_hash_set<std::string> DigestsOf(const v1::JobSpec& spec) {
  absl::flat_hash_set<std::string> digests;
  for (const v1::FileSpec& file : spec.files()) digests.insert(file.sha256());
  return digests;
}

}  // namespace

grpc::ServerUnaryReactor* ClusterServiceImpl::SubmitJob(grpc::CallbackServerContext* context,
                                                        const v1::SubmitJobRequest* request,
                                                        v1::SubmitJobResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  v1::JobSpec spec = request->spec();
  std::vector<spec::ArrayTask> tasks;
  const absl::Status valid = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckProtocolVersion(request->protocol_version(), 0, "client"));
    RETURN_IF_ERROR(ValidateSubmit(*request));
    spec::ApplyDefaults(spec);
    if (spec.has_array()) {
      ASSIGN_OR_RETURN(tasks, spec::ExpandArray(request->spec()));
    } else {
      RETURN_IF_ERROR(spec::Validate(spec));
      RETURN_IF_ERROR(spec::CheckPlaceholders(spec));
    }
    return spec::CheckUploadedFiles(spec);
  }();
  if (!valid.ok()) return Finish(reactor, valid);
  absl::StatusOr<core::Actor> actor = calls_.ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  core::SubmitJob event;
  event.spec = std::move(spec);
  event.tasks = std::move(tasks);
  event.idempotency_key = request->idempotency_key();
  event.actor = *std::move(actor);
  event.spec_digest = DigestOf(request->spec());
  if (request->validate_only()) {
    Validate(reactor, std::move(event), response);
    return reactor;
  }
  if (event.spec.files().empty()) {
    Submit(reactor, std::move(event), response, kIdAttempts);
    return reactor;
  }
  const core::Actor submitter = event.actor;
  absl::flat_hash_set<std::string> digests = DigestsOf(event.spec);
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

void ClusterServiceImpl::Validate(grpc::ServerUnaryReactor* reactor, core::SubmitJob event,
                                  v1::SubmitJobResponse* response) {
  event.job_id = JobId(absl::StrCat(event.spec.name(), "-"));  // not the id of a job
  const core::Actor actor = event.actor;
  absl::flat_hash_set<std::string> digests = DigestsOf(event.spec);
  const v1::JobSpec spec = event.spec;
  // Called on the file thread with the size of the files that the submission would upload.
  auto check_space = [=, this, event = std::move(event)](uint64_t missing) mutable {
    const absl::Status room =
        missing == 0 ? absl::OkStatus() : files_.store->CheckSpace(actor.name, missing);
    if (!room.ok()) return (void)Finish(reactor, room);
    calls_.Query(reactor, actor,
                 [=, event = std::move(event)](core::Core& core, const core::Actor& actor,
                                               const Time& now) mutable -> absl::Status {
                   RETURN_IF_ERROR(core.CheckSubmit(event, now));
                   *response->mutable_forecast() = core.ForecastJob(event.spec, actor, now);
                   std::string warning = core.LimitsWarning(event.spec);
                   if (!warning.empty()) response->mutable_job()->add_warnings(warning);
                   *response->mutable_job()->mutable_spec() = std::move(event.spec);
                   return absl::OkStatus();
                 });
  };
  WithFiles(reactor, actor, std::move(digests),
            [=, this, check_space = std::move(check_space)](const files::FileUser& user) mutable {
              const uint64_t missing = files_.store->MissingBytes(spec, user, files_.clock().wall);
              if (missing == 0 || files_.store->CheckSpace(user.owner, missing).ok()) {
                return check_space(missing);
              }
              Recount(files_, loop_, [missing, check_space = std::move(check_space)](bool) mutable {
                check_space(missing);
              });
            });
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
  core::SubmitJob again = event;
  calls_.Push(std::move(event), [=, this, again = std::move(again)](core::Reply reply) mutable {
    if (absl::IsAborted(reply.job.status()) && attempts > 1) {
      Submit(reactor, std::move(again), response, attempts - 1);
      return;
    }
    if (reply.job.ok()) *response->mutable_job() = *std::move(reply.job);
    if (reply.array.has_value()) *response->mutable_array() = *std::move(reply.array);
    response->set_already_existed(reply.already_existed);
    Finish(reactor, reply.job.status());
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::FindMissingFiles(
    grpc::CallbackServerContext* context, const v1::FindMissingFilesRequest* request,
    v1::FindMissingFilesResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateFindMissingFiles(*request);
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = calls_.ActorOf(*context);
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
  return StartUploadFile(files_, loop_, Admit(*context, uploads_));
}

}  // namespace muster::service
