// The coordinator's records as keys and bytes: proto/muster/v1/store.proto.
#ifndef MUSTER_COORDINATOR_CORE_RECORDS_H_
#define MUSTER_COORDINATOR_CORE_RECORDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

store::Mutation PutSchema();
store::Mutation Put(const v1::JobRecord& record);
store::Mutation Put(const v1::GenerationRecord& record);
store::Mutation Put(const v1::EventRecord& record);
store::Mutation Put(const v1::NodeRecord& record);
store::Mutation DeleteEvent(const JobId& job, uint64_t sequence);
store::Mutation DeleteNode(const NodeName& node);

struct Records {
  bool has_schema = false;
  std::map<JobId, v1::JobRecord> jobs;
  std::map<JobId, std::map<Generation, v1::GenerationRecord>> generations;
  std::map<JobId, std::vector<v1::JobEvent>> events;  // by sequence
  std::map<NodeName, v1::NodeRecord> nodes;
};

// Errors: FAILED_PRECONDITION for a newer schema, DATA_LOSS for a record that cannot be read, does
// not belong to its key, or contradicts another one.
absl::StatusOr<Records> ReadRecords(absl::Span<const store::Record> records);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECORDS_H_
