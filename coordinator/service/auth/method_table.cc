#include "coordinator/service/auth/method_table.h"

namespace muster::service {
namespace {

using enum Role;
using enum Audited;

constexpr MethodRule kMethods[] = {
    {"/muster.v1.ClusterService/GetJob", kView},
    {"/muster.v1.ClusterService/ListJobs", kView},
    {"/muster.v1.ClusterService/WatchJob", kView},
    {"/muster.v1.ClusterService/ListEvents", kView},
    {"/muster.v1.ClusterService/GetJobHistory", kView},
    {"/muster.v1.ClusterService/ReadLog", kView},
    {"/muster.v1.ClusterService/ListNodes", kView},
    {"/muster.v1.ClusterService/GetNode", kView},
    {"/muster.v1.ClusterService/GetQueue", kView},
    {"/muster.v1.ClusterService/GetArray", kView},
    {"/muster.v1.ClusterService/GetReport", kView},
    {"/muster.v1.ClusterService/GetVersion", kView},
    {"/muster.v1.ClusterService/CreatePageLogin", kView, kAlways},
    {"/muster.v1.ClusterService/FindMissingFiles", kSubmit},
    {"/muster.v1.ClusterService/ReadFiles", kSubmit},
    {"/muster.v1.ClusterService/ListSecrets", kSubmit},
    {"/muster.v1.ClusterService/UploadFile", kSubmit, kAlways, "file", "sha256"},
    {"/muster.v1.ClusterService/Exec", kSubmit, kAlways, "job", "start.job_id"},
    {"/muster.v1.ClusterService/RemoveJob", kSubmit, kAlways, "job", "job_id"},
    {"/muster.v1.ClusterService/SubmitJob", kSubmit, kAlways, "job", "spec.name", "job.job_id"},
    {"/muster.v1.ClusterService/CancelJob", kSubmit, kAlways, "job", "job_id"},
    {"/muster.v1.ClusterService/HoldJob", kSubmit, kAlways, "job", "job_id"},
    {"/muster.v1.ClusterService/ReleaseJob", kSubmit, kAlways, "job", "job_id"},
    {"/muster.v1.ClusterService/RequeueJob", kSubmit, kAlways, "job", "job_id"},
    {"/muster.v1.ClusterService/CheckpointJob", kSubmit, kAlways, "job", "job_id"},
    {"/muster.v1.ClusterService/CancelArray", kSubmit, kAlways, "array", "array_id"},
    {"/muster.v1.ClusterService/SetSecret", kSubmit, kAlways, "secret", "name"},
    {"/muster.v1.ClusterService/ShareJob", kAdmin, kAlways, "job", "job_id"},
    {"/muster.v1.ClusterService/CordonNode", kAdmin, kAlways, "node", "name"},
    {"/muster.v1.ClusterService/UncordonNode", kAdmin, kAlways, "node", "name"},
    {"/muster.v1.ClusterService/DrainNode", kAdmin, kAlways, "node", "name"},
    {"/muster.v1.ClusterService/RemoveNode", kAdmin, kAlways, "node", "name"},
    {"/muster.v1.ClusterService/ConfirmNodeLost", kAdmin, kAlways, "node", "name"},
    {"/muster.v1.ClusterService/TestNode", kAdmin, kAlways, "node", "name"},
    {"/muster.v1.ClusterService/RecoverJobs", kAdmin, kAlways, "node", "nodes"},
    {"/muster.v1.IdentityService/ListJoinTokens", kAdmin},
    {"/muster.v1.IdentityService/CreateJoinToken", kAdmin, kAlways, "join_token", "", "token.id"},
    {"/muster.v1.IdentityService/RevokeJoinToken", kAdmin, kAlways, "join_token", "id"},
    {"/muster.v1.IdentityService/EnrollNode", kAnyone, kAlways, "node", "node_name"},
    {"/muster.v1.IdentityService/RenewCertificate", kWorker, kAlways, "node", ""},
    {"/muster.v1.WorkerService/Session", kWorker, kRefusals, "node", "hello.node_name"},
    {"/muster.v1.WorkerService/SendLog", kWorker},
    {"/muster.v1.WorkerService/ServeExec", kWorker},
    {"/muster.v1.WorkerService/SendFiles", kWorker},
    {"/muster.v1.WorkerService/FetchFile", kWorker},
};

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case kView:
      return "view";
    case kSubmit:
      return "submit";
    case kAdmin:
      return "admin";
    case kWorker:
      return "worker";
    case kAnyone:
      break;
  }
  return "";
}

absl::Span<const MethodRule> AllMethods() { return kMethods; }

bool Suffices(Role has, Role needed) {
  if (has == kAdmin || has == needed || needed == kAnyone) return true;
  return has == kSubmit && needed == kView;
}

const MethodRule* FindMethod(absl::string_view method) {
  for (const MethodRule& rule : kMethods) {
    if (rule.method == method) return &rule;
  }
  return nullptr;
}

}  // namespace muster::service
