// Finds the values of a job's secrets.
#ifndef MUSTER_WORKER_AGENT_GENERATION_SECRETS_H_
#define MUSTER_WORKER_AGENT_GENERATION_SECRETS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

using SecretValues = std::map<std::string, std::string>;  // by name

// Makes the folder of secrets inaccessible to other users; one of root must only not be writable by
// them. A missing folder is none. Errors: those of security::MakePrivateDirectory.
absl::Status CheckSecretsFolder(const std::string& directory);

// Removes the values from a launch, so that they are written nowhere, and returns them.
SecretValues TakeSecrets(v1::Launch& launch);

// Returns the variables of spec.secret_env as NAME=value. A secret is taken from `sent` by the
// coordinator, else from the file DIRECTORY/OWNER/NAME, else from DIRECTORY/NAME; a newline at the
// end of a file is not part of the value. Without a directory there are no files. Errors:
// FAILED_PRECONDITION, with both places, for a missing secret, and for a file that cannot be read
// or is accessible to other users.
absl::StatusOr<std::vector<std::string>> ResolveSecrets(const v1::Launch& launch,
                                                        const SecretValues& sent,
                                                        const std::string& directory);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_SECRETS_H_
