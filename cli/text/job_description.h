// The text of `muster describe`.
#ifndef MUSTER_CLI_TEXT_JOB_DESCRIPTION_H_
#define MUSTER_CLI_TEXT_JOB_DESCRIPTION_H_

#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// The text without ranks and events: one `key: value` per line. Each failure is described once. Of
// `env` only the names are shown, because values may be secrets.
std::string Description(const v1::Job& job, absl::Time now);

// The events of a job whose Description is shown above: they refer to its failures.
std::string EventTable(const v1::Job& job, absl::Span<const v1::JobEvent> events, absl::Time now);

// The job's message without the text of its first failure.
std::string MessageBesidesFailure(const v1::Job& job);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_JOB_DESCRIPTION_H_
