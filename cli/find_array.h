// Finds what a user names on the command line: a job, or an array of jobs.
#ifndef MUSTER_CLI_FIND_ARRAY_H_
#define MUSTER_CLI_FIND_ARRAY_H_

#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/client.h"
#include "cli/follow/stopper.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

// Whether the error of a call for a job does not rule out that the name is that of an array: there
// is no such job, or several match, such as the tasks of the array.
bool MayBeArray(const absl::Status& status);

using JobOrArray = std::variant<v1::Job, v1::GetArrayResponse>;
// If there is neither, returns the error for the job.
absl::StatusOr<JobOrArray> FindJobOrArray(ClusterClient& client, const std::string& name,
                                          Stopper* stopper = nullptr);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FIND_ARRAY_H_
