// Keys and serialized values of the coordinator's records, defined in proto/muster/v1/store.proto.
// docs/design/store.md describes the keys.
#ifndef MUSTER_COORDINATOR_CORE_RECORDS_H_
#define MUSTER_COORDINATOR_CORE_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "coordinator/core/store_identity.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// The size of the parts in which large messages are stored.
inline constexpr size_t kPartBytes = 512 << 10;

inline constexpr char kSchemaKey[] = "meta/schema";
// An older store is migrated (recovery/migration.h), a newer one is refused.
inline constexpr uint32_t kSchemaVersion = 1;
inline constexpr char kClusterKey[] = "meta/cluster";
inline constexpr char kCommitKey[] = "meta/commit";
inline constexpr char kFenceKey[] = "meta/fence";
inline constexpr char kStartPrefix[] = "start/";
inline constexpr char kStagedPrefix[] = "staged/";
inline constexpr char kJobPrefix[] = "job/";
inline constexpr char kSpecPrefix[] = "spec/";
inline constexpr char kSummaryPrefix[] = "summary/";
inline constexpr char kGenerationPrefix[] = "generation/";
inline constexpr char kPlacementPrefix[] = "placement/";
inline constexpr char kEventPrefix[] = "event/";
inline constexpr char kNodePrefix[] = "node/";
inline constexpr char kHistoryPrefix[] = "history/";
inline constexpr char kLogPrefix[] = "log/";
inline constexpr char kOwnerPrefix[] = "owner/";
inline constexpr char kSecretPrefix[] = "secret/";
inline constexpr char kIdentityPrefix[] = "identity/";
inline constexpr char kJoinTokenPrefix[] = "join/";

std::string StartKey(uint64_t number);
std::string StagedKey(uint64_t commit_index, uint32_t number);
std::string JobKey(const std::string& job);
std::string SpecKey(const std::string& id, uint32_t part);
std::string SummaryKey(const std::string& job, uint32_t part);
std::string GenerationKey(const std::string& job, uint64_t generation);
std::string PlacementKey(const std::string& job, uint64_t generation, uint32_t node_rank);
std::string EventKey(const std::string& job, uint64_t sequence);
std::string NodeKey(const std::string& node);
std::string LogTailKey(const std::string& job, uint64_t generation, uint32_t rank);
std::string HistoryKey(const std::string& job);
std::string OwnerKey(const std::string& owner);
std::string SecretKey(const std::string& owner, const std::string& name);
std::string IdentityKey(const std::string& node);
std::string JoinTokenKey(const std::string& id);

// The key of a record's message.
inline std::string KeyOf(const v1::CommitRecord&) { return kCommitKey; }
inline std::string KeyOf(const v1::FenceRecord&) { return kFenceKey; }
inline std::string KeyOf(const v1::JobRecord& record) { return JobKey(record.job_id()); }
inline std::string KeyOf(const v1::SpecRecord& record) {
  return SpecKey(record.id(), record.part());
}
inline std::string KeyOf(const v1::SummaryRecord& record) {
  return SummaryKey(record.id(), record.part());
}
inline std::string KeyOf(const v1::GenerationRecord& record) {
  return GenerationKey(record.job_id(), record.generation());
}
inline std::string KeyOf(const v1::PlacementRecord& record) {
  return PlacementKey(record.job_id(), record.generation(), record.node_rank());
}
inline std::string KeyOf(const v1::EventRecord& record) {
  return EventKey(record.event().job_id(), record.event().sequence());
}
inline std::string KeyOf(const v1::NodeRecord& record) { return NodeKey(record.name()); }
inline std::string KeyOf(const v1::HistoryRecord& record) { return HistoryKey(record.job_id()); }
inline std::string KeyOf(const v1::OwnerRecord& record) { return OwnerKey(record.name()); }
inline std::string KeyOf(const v1::SecretRecord& record) {
  return SecretKey(record.owner(), record.name());
}
inline std::string KeyOf(const v1::IdentityRecord& record) { return IdentityKey(record.node()); }
inline std::string KeyOf(const v1::JoinTokenRecord& record) { return JoinTokenKey(record.id()); }

template <typename Record>
store::Mutation Put(const Record& record) {
  return {KeyOf(record), record.SerializeAsString()};
}

store::Mutation PutLogTail(const v1::LogTail& tail);
store::Mutation PutSchema(uint32_t version = kSchemaVersion);
store::Mutation PutCluster(const std::string& cluster_id);
// The newest start of a coordinator.
store::Mutation PutStart(const StoreIdentity& store);
// PutGeneration writes the record of a generation without its nodes, PutPlacement that of one node.
store::Mutation PutGeneration(const v1::GenerationRecord& record);
store::Mutation PutPlacement(const v1::GenerationRecord& record, uint32_t node_rank);
// Replaces the job's record while its other records are being deleted.
store::Mutation PutForgotten(const JobId& job);
store::Mutation DeleteEvent(const JobId& job, uint64_t sequence);
store::Mutation DeleteNode(const NodeName& node);
store::Mutation DeleteSecret(const std::string& owner, const std::string& name);
store::Mutation DeleteIdentity(const std::string& node);
store::Mutation DeleteJoinToken(const std::string& id);

// Splits the bytes into Records (SpecRecord, SummaryRecord) with this id, which are added to
// `writes`. Returns their number, at least 1.
template <typename Record>
uint32_t PutParts(const std::string& id, const std::string& bytes,
                  std::vector<store::Mutation>& writes) {
  uint32_t parts = 0;
  for (size_t at = 0; at < bytes.size() || parts == 0; at += kPartBytes) {
    Record record;
    record.set_id(id);
    record.set_part(parts++);
    record.set_data(bytes.substr(at, kPartBytes));
    writes.push_back(Put(record));
  }
  return parts;
}

// Errors: DATA_LOSS, with the key, when the bytes cannot be parsed as this message.
absl::Status ParseRecord(const store::Record& record, google::protobuf::Message& message);
// Errors: DATA_LOSS unless the record has the key of its contents.
absl::Status CheckKey(const store::Record& record, const std::string& expected);
// Parses a record with a key of its own. Errors: as ParseRecord and CheckKey.
template <typename Record>
absl::Status ReadRecord(const store::Record& record, Record& message) {
  const absl::Status parsed = ParseRecord(record, message);
  return parsed.ok() ? CheckKey(record, KeyOf(message)) : parsed;
}

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECORDS_H_
