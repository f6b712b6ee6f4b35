// Helpers for absl::Status: annotation, errno conversion and propagation macros.
#ifndef MUSTER_COMMON_STATUS_H_
#define MUSTER_COMMON_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

// The same status with `context: ` prepended to its message; code and payloads are kept. OK stays
// OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// A status for an errno value, e.g. "open /x: No such file or directory" if `what` is "open /x".
absl::Status ErrnoStatus(int error_number, absl::string_view what);

}  // namespace muster

#define MUSTER_CONCAT_INNER_(a, b) a##b
#define MUSTER_CONCAT_(a, b) MUSTER_CONCAT_INNER_(a, b)

#define RETURN_IF_ERROR(expression)                  \
  do {                                               \
    absl::Status muster_status_ = (expression);      \
    if (!muster_status_.ok()) return muster_status_; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): assigns *F() to x, or returns F's status.
#define ASSIGN_OR_RETURN(lhs, expression) \
  ASSIGN_OR_RETURN_IMPL_(MUSTER_CONCAT_(muster_status_or_, __LINE__), lhs, expression)
#define ASSIGN_OR_RETURN_IMPL_(status_or, lhs, expression) \
  auto status_or = (expression);                           \
  if (!status_or.ok()) return status_or.status();          \
  lhs = std::move(status_or).value()

#endif  // MUSTER_COMMON_STATUS_H_
