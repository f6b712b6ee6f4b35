// ClusterService: methods about the cluster as a whole: queue, owners, sign-in, version.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/calls/cluster_service.h"
#include "coordinator/service/calls/page.h"
#include "coordinator/service/checks/validate.h"

namespace muster::service {
namespace {

constexpr uint32_t kDefaultReportDays = 7;

using ReportedOwner = v1::GetReportResponse::Owner;

double SlotSeconds(const ReportedOwner& owner) {
  return owner.cpu_slot_seconds() + owner.gpu_slot_seconds();
}

// The position of a job in a page token: the number of jobs up to it, and its id. The order of the
// queue changes: the next page continues after the job if it is still queued.
core::QueuePosition ParsePosition(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  core::QueuePosition position;
  if (absl::SimpleAtoi(parts.first, &position.count)) position.job = JobId(parts.second);
  return position;
}

}  // namespace

absl::StatusOr<AdmittedCaller> ClusterServiceImpl::Admit(const grpc::CallbackServerContext& context,
                                                         CallerLimit& limit) {
  ASSIGN_OR_RETURN(core::Actor actor, calls_.ActorOf(context));
  return limit.Admit(std::move(actor));
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetQueue(grpc::CallbackServerContext* context,
                                                       const v1::GetQueueRequest* request,
                                                       v1::GetQueueResponse* response) {
  return calls_.Query(
      context, absl::OkStatus(),
      [=](core::Core& core, const core::Actor& actor, const Time& now) -> absl::Status {
        ASSIGN_OR_RETURN(Page page, Page::Open("queue", request->page_token(), request->limit()));
        const core::QueuePosition after = ParsePosition(page.after());
        const uint32_t most = limits::kJobsPerList;
        const uint32_t limit = request->limit() == 0 ? most : std::min(request->limit(), most);
        *response = core.GetQueue(limit + 1, now, after);  // to see whether more follow
        int kept = 0;
        for (v1::QueuedJob& queued : *response->mutable_jobs()) {
          core::HidePrivate(actor, *queued.mutable_job());
          const std::string& id = queued.job().job_id();
          if (!page.Add(queued, absl::StrCat(after.count + kept + 1, "/", id))) break;
          ++kept;
        }
        response->mutable_jobs()->DeleteSubrange(kept, response->jobs_size() - kept);
        response->set_next_page_token(page.next_token());
        return CheckSize(*response);
      });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetReport(grpc::CallbackServerContext* context,
                                                        const v1::GetReportRequest* request,
                                                        v1::GetReportResponse* response) {
  const uint32_t days = request->days() == 0 ? kDefaultReportDays : request->days();
  return calls_.Query(
      context, ValidateGetReport(*request),
      [=](core::Core& core, const core::Actor& /*actor*/, const Time& now) -> absl::Status {
        ASSIGN_OR_RETURN(Page page, Page::Open("report", request->page_token()));
        *response = core.GetReport(days, now);
        // Their use changes between two pages: pages are by name, and sorted by use.
        page.Keep(*response->mutable_owners(),
                  [](const ReportedOwner& owner) { return owner.owner(); });
        std::stable_sort(response->mutable_owners()->begin(), response->mutable_owners()->end(),
                         [](const ReportedOwner& a, const ReportedOwner& b) {
                           return SlotSeconds(a) > SlotSeconds(b);
                         });
        response->set_next_page_token(page.next_token());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::SetSecret(grpc::CallbackServerContext* context,
                                                        const v1::SetSecretRequest* request,
                                                        v1::SetSecretResponse* /*response*/) {
  return calls_.Change(context, absl::OkStatus(),
                       core::SetSecret{.name = request->name(), .value = request->value()});
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ListSecrets(grpc::CallbackServerContext* context,
                                                          const v1::ListSecretsRequest* request,
                                                          v1::ListSecretsResponse* response) {
  return calls_.Query(
      context, absl::OkStatus(),
      [=](core::Core& core, const core::Actor& actor, const Time& /*now*/) -> absl::Status {
        ASSIGN_OR_RETURN(Page page, Page::Open("secrets", request->page_token()));
        *response = core.ListSecrets(actor);
        page.Keep(*response->mutable_secrets(), [](const v1::ListSecretsResponse::Secret& secret) {
          return secret.owner() + '\0' + secret.name();
        });
        response->set_next_page_token(page.next_token());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::CreatePageLogin(
    grpc::CallbackServerContext* context, const v1::CreatePageLoginRequest* /*request*/,
    v1::CreatePageLoginResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<core::Actor> actor = calls_.ActorOf(*context);
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
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  response->set_software_version(kSoftwareVersion);
  response->set_protocol_version(kProtocolVersion);
  // Anybody may ask.
  calls_.Query(reactor, core::Actor(),
               [=](core::Core& core, const core::Actor& /*actor*/, const Time& /*now*/) {
                 response->set_cluster_id(core.store().cluster_id);
                 response->set_commit_index(core.store().commit_index);
                 return absl::OkStatus();
               });
  return reactor;
}

}  // namespace muster::service
