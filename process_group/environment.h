// Where a program's environment, or an address, says that it is.
#ifndef MUSTER_PROCESS_GROUP_ENVIRONMENT_H_
#define MUSTER_PROCESS_GROUP_ENVIRONMENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/address.h"
#include "process_group/process_group.h"

namespace muster {

// `options` with rank, world_size, address and run as the environment says: RANK, WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT, and what names the run where there is it (MUSTER_JOB_ID and
// MUSTER_GENERATION; TORCHELASTIC_RUN_ID and TORCHELASTIC_RESTART_COUNT). INVALID_ARGUMENT names
// the variable that is missing or malformed.
absl::StatusOr<ProcessGroupOptions> FromEnvironment(ProcessGroupOptions options);

// Of tcp://HOST:PORT, with a port. INVALID_ARGUMENT.
absl::StatusOr<Address> ParseTcpAddress(absl::string_view text);

// The numeric address of this machine from which `address` is reached; nothing is sent.
// UNAVAILABLE.
absl::StatusOr<std::string> OwnAddressTowards(const Address& address);

}  // namespace muster

#endif  // MUSTER_PROCESS_GROUP_ENVIRONMENT_H_
