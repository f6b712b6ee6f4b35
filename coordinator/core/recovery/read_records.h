// Reads the records of a store, and checks that they agree with one another.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_READ_RECORDS_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_READ_RECORDS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

struct Records {
  std::map<JobId, Job> jobs;  // without generations and events
  std::map<JobId, std::map<Generation, v1::GenerationRecord>> generations;  // with their nodes
  std::map<JobId, std::vector<v1::JobEvent>> events;                        // by sequence
  std::map<NodeName, v1::NodeRecord> nodes;
  // Jobs that are being forgotten, with the keys that are left: the job's own first.
  std::map<JobId, std::vector<std::string>> forgotten;
};

// Reads records of this build's schema. Errors: DATA_LOSS for a record that cannot be read, does
// not belong to its key, or contradicts another one.
absl::StatusOr<Records> ReadRecords(absl::Span<const store::Record> records);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_READ_RECORDS_H_
