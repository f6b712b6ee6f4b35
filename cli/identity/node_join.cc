#include "cli/identity/node_join.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/client.h"
#include "cli/identity/identity_files.h"
#include "common/grpc/channel.h"
#include "common/grpc/deadline.h"
#include "common/grpc/status.h"
#include "common/process/machine_id.h"
#include "common/security/certificate.h"
#include "common/security/pinned_authority.h"
#include "common/security/text_file.h"
#include "common/status.h"
#include "common/time/now.h"
#include "grpcpp/grpcpp.h"

namespace muster::cli {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);

constexpr absl::Duration kPause = absl::Milliseconds(200);

// The coordinator's authority, once it listens. The token is not sent yet, so this can be repeated.
absl::StatusOr<std::string> FetchAuthority(const NodeJoin& options) {
  const SteadyTime give_up = Now().steady + options.patience;
  for (bool first = true;; first = false) {
    absl::StatusOr<std::string> authority =
        security::FetchPinnedAuthority(options.coordinator, options.ca_pin);
    if (!absl::IsUnavailable(authority.status()) || Now().steady >= give_up) return authority;
    if (first) {
      options.on_wait(absl::StrCat(authority.status().message(), "; trying again for ",
                                   absl::FormatDuration(options.patience)));
    }
    absl::SleepFor(kPause);
  }
}

// The certificate in the folder, if it is that of this node in the cluster with this authority.
absl::StatusOr<std::optional<security::CertificateInfo>> FindIdentity(const NodeJoin& options,
                                                                      const std::string& folder,
                                                                      const std::string& authority,
                                                                      absl::Time now) {
  const std::string path = folder + "/node.pem";
  if (!std::filesystem::exists(path)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string text, security::ReadTextFile(path));
  ASSIGN_OR_RETURN(security::CertificateInfo info, security::ReadCertificate(text));
  const std::optional<security::NodeCertificate> node = security::NodeOf(info);
  if (!security::IsIssuedBy(text, authority) || !node.has_value()) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " belongs to another cluster; to leave that one, remove ", folder));
  }
  if (node->node != options.name) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is the identity of node ", node->node,
                                                 "; to join as ", options.name, ", remove ",
                                                 folder));
  }
  if (info.not_after <= now) return std::nullopt;
  return info;
}

absl::Status AddSettings(const NodeJoin& options, const std::string& data_dir,
                         SettingsFile& settings) {
  const std::string identity = data_dir + "/identity";
  settings.Replace("coordinator", options.coordinator);
  settings.Replace("name", options.name);
  RETURN_IF_ERROR(settings.Add("data-dir", data_dir));
  RETURN_IF_ERROR(settings.Add("tls-ca", identity + "/ca.pem"));
  RETURN_IF_ERROR(settings.Add("tls-cert", identity + "/node.pem"));
  return settings.Add("tls-key", identity + "/node.key");
}

// Asks for a certificate; `authority` is the PEM text with which the coordinator is verified.
absl::StatusOr<std::string> Enroll(const NodeJoin& options, const std::string& data_dir,
                                   const std::string& key, const std::string& authority) {
  v1::EnrollNodeRequest request;
  request.set_token(options.token);
  request.set_node_name(options.name);
  request.set_machine_id(options.machine_id);
  if (request.machine_id().empty()) {
    ASSIGN_OR_RETURN(*request.mutable_machine_id(),
                     FindMachineId(MachineIdFiles(), data_dir + "/machine-id"));
  }
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(), security::NewCertificateRequest(key));
  const std::string file = data_dir + "/identity/joining.pem";
  RETURN_IF_ERROR(WriteOwnedFile(file, authority, FileMode::kPublic));
  const absl::Cleanup remove = [&file] { unlink(file.c_str()); };
  security::ClientSecurity security;
  security.tls.ca = file;
  security.has_node_certificate = true;
  IdentityClient client(options.coordinator, security);
  ASSIGN_OR_RETURN(v1::EnrollNodeResponse response, client.EnrollNode(request));
  return std::move(*response.mutable_certificate_chain());
}

}  // namespace

IdentityClient::IdentityClient(std::string address, security::ClientSecurity security)
    : address_(std::move(address)),
      security_(std::move(security)),
      stub_(v1::IdentityService::NewStub(OpenChannel(address_, {}, security_))) {}

template <typename Request, typename Response>
absl::StatusOr<Response> IdentityClient::Call(grpc::Status (v1::IdentityService::Stub::*method)(
                                                  grpc::ClientContext*, const Request&, Response*),
                                              const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kTimeout));
  Response response;
  const absl::Status status = FromGrpcStatus((*stub_.*method)(&context, request, &response));
  if (status.ok()) return response;
  if (absl::IsUnavailable(status)) {
    // gRPC does not report why TLS failed.
    const absl::Status reason = Explain(status, security_, address_);
    if (!absl::IsUnavailable(reason)) return reason;
    const std::string message(status.message());
    const size_t cause = message.rfind(": ");
    return absl::UnavailableError(
        absl::StrCat("no coordinator at ", address_, ": ",
                     cause == std::string::npos ? message : message.substr(cause + 2)));
  }
  if (absl::IsUnimplemented(status)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the coordinator at ", address_, " is of a version that has no identities of nodes"));
  }
  return status;
}

absl::StatusOr<v1::EnrollNodeResponse> IdentityClient::EnrollNode(
    const v1::EnrollNodeRequest& request) {
  // The coordinator's reason is about the join token, not about an access token.
  return Call(&v1::IdentityService::Stub::EnrollNode, request);
}

absl::StatusOr<v1::CreateJoinTokenResponse> IdentityClient::CreateJoinToken(
    const v1::CreateJoinTokenRequest& request) {
  auto response = Call(&v1::IdentityService::Stub::CreateJoinToken, request);
  if (!response.ok()) return Explain(response.status(), security_, address_);
  return response;
}

absl::StatusOr<v1::ListJoinTokensResponse> IdentityClient::ListJoinTokens() {
  auto response = ReadPages(
      v1::ListJoinTokensRequest(),
      [this](const v1::ListJoinTokensRequest& request) {
        return Call(&v1::IdentityService::Stub::ListJoinTokens, request);
      },
      [](const v1::ListJoinTokensResponse& page, v1::ListJoinTokensResponse& all) {
        all.mutable_tokens()->MergeFrom(page.tokens());
      });
  if (!response.ok()) return Explain(response.status(), security_, address_);
  return response;
}

absl::Status IdentityClient::RevokeJoinToken(const std::string& id) {
  v1::RevokeJoinTokenRequest request;
  request.set_id(id);
  const absl::Status status = Call(&v1::IdentityService::Stub::RevokeJoinToken, request).status();
  return status.ok() ? status : Explain(status, security_, address_);
}

absl::StatusOr<NodeJoinResult> JoinCluster(const NodeJoin& options, absl::Time now) {
  ASSIGN_OR_RETURN(SettingsFile settings, SettingsFile::Read(options.config));
  std::string data_dir = options.data_dir;
  if (data_dir.empty()) data_dir = settings.Get("data-dir");
  if (data_dir.empty()) data_dir = options.default_data_dir;
  RETURN_IF_ERROR(AddSettings(options, data_dir, settings));
  ASSIGN_OR_RETURN(const std::string authority, FetchAuthority(options));
  const std::string identity = data_dir + "/identity";
  ASSIGN_OR_RETURN(const std::optional<security::CertificateInfo> present,
                   FindIdentity(options, identity, authority, now));
  if (present.has_value()) {
    RETURN_IF_ERROR(settings.Write());
    return NodeJoinResult{true, present->not_after};
  }
  RETURN_IF_ERROR(MakeOwnedFolder(identity));
  ASSIGN_OR_RETURN(const std::string key, MakeKey(identity, "node"));
  ASSIGN_OR_RETURN(const std::string chain, Enroll(options, data_dir, key, authority));
  ASSIGN_OR_RETURN(const security::CertificateInfo info, security::ReadCertificate(chain));
  RETURN_IF_ERROR(WriteOwnedFile(identity + "/ca.pem", authority, FileMode::kPublic));
  RETURN_IF_ERROR(WriteOwnedFile(identity + "/node.pem", chain, FileMode::kPublic));
  RETURN_IF_ERROR(settings.Write());
  return NodeJoinResult{false, info.not_after};
}

}  // namespace muster::cli
