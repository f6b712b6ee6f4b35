#include "coordinator/service/auth/access.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/identity.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

std::string RoleName(Role role) { return absl::AsciiStrToLower(v1::Access::Role_Name(role)); }

bool Suffices(Role has, Role needed) {
  if (has == v1::Access::ADMIN || has == needed || needed == v1::Access::ANYONE) return true;
  return has == v1::Access::SUBMIT && needed == v1::Access::VIEW;
}

std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const auto* const file :
       {v1::SubmitJobRequest::descriptor()->file(), v1::EnrollNodeRequest::descriptor()->file(),
        v1::WorkerMessage::descriptor()->file()}) {
    const google::protobuf::ServiceDescriptor& service = *file->service(0);
    for (int i = 0; i < service.method_count(); ++i) methods.push_back(service.method(i));
  }
  return methods;
}

const MethodDescriptor* FindMethod(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "/")) return nullptr;
  const MethodDescriptor* const method =
      google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
          absl::StrReplaceAll(name, {{"/", "."}}));
  const bool callable = method != nullptr && AccessOf(*method).role() != v1::Access::NOBODY;
  return callable ? method : nullptr;
}

}  // namespace muster::service
