// Reads process group options from environment variables, and parses addresses.
#ifndef MUSTER_PROCESS_GROUP_ENVIRONMENT_H_
#define MUSTER_PROCESS_GROUP_ENVIRONMENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/address.h"
#include "process_group/process_group.h"

namespace muster {

// Returns `options` with rank, world_size and address from RANK, WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT, and run, unless set, from the variables that identify the run, where present
// (MUSTER_JOB_ID and MUSTER_GENERATION; TORCHELASTIC_RUN_ID and TORCHELASTIC_RESTART_COUNT).
// INVALID_ARGUMENT names the variable that is missing or malformed.
absl::StatusOr<ProcessGroupOptions> FromEnvironment(ProcessGroupOptions options);

// Parses tcp://HOST:PORT; the port is required. INVALID_ARGUMENT.
absl::StatusOr<Address> ParseTcpAddress(absl::string_view text);

// Returns the numeric local address that this machine uses to reach `address`; sends nothing.
// UNAVAILABLE.
absl::StatusOr<std::string> OwnAddressTowards(const Address& address);

}  // namespace muster

#endif  // MUSTER_PROCESS_GROUP_ENVIRONMENT_H_
