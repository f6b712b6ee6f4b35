#include "coordinator/service/auth/caller.h"

#include <grpc/grpc_security_constants.h>

#include <string>
#include <utility>

#include "common/security/call_metadata.h"
#include "common/security/certificate.h"

namespace muster::service {
namespace {

std::string MetadataOf(const grpc::ServerContextBase& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

}  // namespace

Authorizer::Caller CallerOf(const grpc::ServerContextBase& context) {
  Authorizer::Caller caller;
  if (context.client_metadata().count(security::kTokenKey) > 0) {
    caller.token = MetadataOf(context, security::kTokenKey);
  }
  caller.protocol_version = MetadataOf(context, security::kProtocolVersionKey);
  caller.newest_protocol_version = MetadataOf(context, security::kNewestProtocolVersionKey);
  caller.software_version = MetadataOf(context, security::kSoftwareVersionKey);
  const auto certificates =
      context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (!certificates.empty()) {
    absl::StatusOr<security::CertificateInfo> read = security::ReadCertificate(
        absl::string_view(certificates[0].data(), certificates[0].size()));
    if (read.ok()) caller.certificate = *std::move(read);
  }
  return caller;
}

}  // namespace muster::service
