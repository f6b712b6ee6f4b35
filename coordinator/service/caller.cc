#include "coordinator/service/caller.h"

#include <string>

#include "common/security/call_metadata.h"

namespace muster::service {
namespace {

std::string MetadataOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

}  // namespace

Authorizer::Caller CallerOf(const grpc::CallbackServerContext& context) {
  Authorizer::Caller caller;
  if (context.client_metadata().count(security::kTokenKey) > 0) {
    caller.token = MetadataOf(context, security::kTokenKey);
  }
  caller.protocol_version = MetadataOf(context, security::kProtocolVersionKey);
  caller.newest_protocol_version = MetadataOf(context, security::kNewestProtocolVersionKey);
  caller.software_version = MetadataOf(context, security::kSoftwareVersionKey);
  return caller;
}

}  // namespace muster::service
