// Roles of callers, and which methods of the coordinator they may call: the option `access` of the
// methods in proto/muster/v1.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_ACCESS_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_ACCESS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "proto/muster/v1/access.pb.h"

namespace muster::service {

using Role = v1::Access::Role;
using google::protobuf::MethodDescriptor;

// "view", as in a tokens file.
std::string RoleName(Role role);

// Whether a caller with the role `has` may call a method that requires `needed`.
bool Suffices(Role has, Role needed);

// Every method that the coordinator serves.
std::vector<const MethodDescriptor*> AllMethods();

// The method "/package.Service/Method", or null if no role may call it.
const MethodDescriptor* FindMethod(absl::string_view name);

inline const v1::Access& AccessOf(const MethodDescriptor& method) {
  return method.options().GetExtension(v1::access);
}

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_ACCESS_H_
