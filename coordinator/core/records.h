// The coordinator's records as keys and bytes: proto/muster/v1/store.proto.
#ifndef MUSTER_COORDINATOR_CORE_RECORDS_H_
#define MUSTER_COORDINATOR_CORE_RECORDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

inline constexpr char kSchemaKey[] = "meta/schema";
inline constexpr char kGenerationPrefix[] = "generation/";

store::Mutation PutSchema();
store::Mutation Put(const v1::JobRecord& record);
// What is of the whole generation, and one node's part of it.
store::Mutation PutGeneration(const v1::GenerationRecord& record);
store::Mutation PutPlacement(const v1::GenerationRecord& record, uint32_t node_rank);
store::Mutation Put(const v1::EventRecord& record);
store::Mutation Put(const v1::NodeRecord& record);
// In place of the job's own record, while the others are deleted.
store::Mutation PutForgotten(const JobId& job);
store::Mutation DeleteEvent(const JobId& job, uint64_t sequence);
store::Mutation DeleteNode(const NodeName& node);

// The keys of all that is on record of a job, its own first.
std::vector<std::string> KeysOf(const Job& job);

// DATA_LOSS, with the key, for bytes that are no such message.
absl::Status ParseRecord(const store::Record& record, google::protobuf::Message& message);

struct Records {
  std::map<JobId, v1::JobRecord> jobs;
  std::map<JobId, std::map<Generation, v1::GenerationRecord>> generations;  // with their nodes
  std::map<JobId, std::vector<v1::JobEvent>> events;                        // by sequence
  std::map<NodeName, v1::NodeRecord> nodes;
  // Of jobs that are being forgotten: the keys that are left, the job's own first.
  std::map<JobId, std::vector<std::string>> forgotten;
};

// Of this build's schema. Errors: DATA_LOSS for a record that cannot be read, does not belong to
// its key, or contradicts another one.
absl::StatusOr<Records> ReadRecords(absl::Span<const store::Record> records);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECORDS_H_
