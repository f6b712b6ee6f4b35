// Reads the records of a store and checks that they are consistent.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_READ_RECORDS_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_READ_RECORDS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/store_identity.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

struct Records {
  StoreIdentity store;  // empty in stores of older schemas
  v1::FenceRecord fence;
  v1::CommitRecord last_commit;
  std::map<JobId, Job> jobs;  // without generations and events
  std::map<JobId, std::map<Generation, v1::GenerationRecord>> generations;  // with their nodes
  std::map<JobId, std::vector<v1::JobEvent>> events;  // sorted by sequence number
  std::map<NodeName, v1::NodeRecord> nodes;
  std::map<JobId, std::vector<v1::LogTail>> log_tails;
  std::map<JobId, v1::HistoryRecord> histories;
  std::vector<v1::OwnerRecord> owners;
  std::vector<v1::SecretRecord> secrets;
  std::vector<v1::IdentityRecord> identities;
  std::vector<v1::JoinTokenRecord> join_tokens;
  // Jobs that are being deleted, with the keys still in the store, the job's own first.
  std::map<JobId, std::vector<std::string>> forgotten;
  std::vector<v1::JobRecord> kept_keys;  // those of which the idempotency key is still used
};

// Reads records of this build's schema. Errors: DATA_LOSS for a record that cannot be parsed, does
// not match its key, or contradicts another one.
absl::StatusOr<Records> ReadRecords(absl::Span<const store::Record> records);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_READ_RECORDS_H_
