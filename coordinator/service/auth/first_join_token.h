// The join token that `muster cluster init` has printed, before there was a coordinator.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_FIRST_JOIN_TOKEN_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_FIRST_JOIN_TOKEN_H_

#include <string>

#include "absl/status/status.h"
#include "coordinator/service/loop/core_loop.h"
#include "coordinator/service/loop/pending_requests.h"

namespace muster::service {

// Stores the token of the file, whose line is "ID DIGEST EXPIRE_TIME USES" with a time in seconds
// since 1970, and then deletes the file. Does nothing without a path or file. Errors: those of
// ReadPrivateFile; INVALID_ARGUMENT for another line.
absl::Status TakeFirstJoinToken(const std::string& path, CoreLoop& loop, PendingRequests& requests);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_FIRST_JOIN_TOKEN_H_
