// The coordinator's methods: the role that each requires, and what the audit log records of it.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_METHOD_TABLE_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_METHOD_TABLE_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace muster::service {

// view, submit and admin each include the rights of the roles before them. worker is the role of a
// node's worker; admin includes it as well. Methods with kAnyone authenticate their callers
// themselves.
enum class Role { kView, kSubmit, kAdmin, kWorker, kAnyone };

absl::string_view RoleName(Role role);

enum class Audited {
  kNever,     // reads only
  kRefusals,  // calls of nodes that are frequent and only of interest if they are not allowed
  kAlways,
};

struct MethodRule {
  absl::string_view method;  // "/package.Service/Method"
  Role role;
  Audited audited = Audited::kNever;
  // Kind of the object that a call changes, and the field of the request (for a stream, of its
  // first message) that names it: "spec.name".
  absl::string_view object = "";
  absl::string_view request_field = "";
  // The field of the response that names it better, once it is known.
  absl::string_view response_field = "";
};

// Every method of proto/muster/v1 that the coordinator serves.
absl::Span<const MethodRule> AllMethods();

// Whether a caller with the role `has` may call a method that requires `needed`.
bool Suffices(Role has, Role needed);

// The rule of "/package.Service/Method", or null if no role may call it.
const MethodRule* FindMethod(absl::string_view method);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_METHOD_TABLE_H_
