// Keys and serialized values of the coordinator's records, defined in proto/muster/v1/store.proto.
// docs/design/store.md describes the keys.
#ifndef MUSTER_COORDINATOR_CORE_RECORDS_H_
#define MUSTER_COORDINATOR_CORE_RECORDS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/ids.h"
#include "coordinator/core/store_identity.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

inline constexpr char kSchemaKey[] = "meta/schema";
// An older store is migrated (recovery/migration.h), a newer one is refused.
inline constexpr uint32_t kSchemaVersion = 1;
inline constexpr char kClusterKey[] = "meta/cluster";
inline constexpr char kCommitKey[] = "meta/commit";
inline constexpr char kFenceKey[] = "meta/fence";
inline constexpr char kStartPrefix[] = "start/";
inline constexpr char kJobPrefix[] = "job/";
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
std::string JobKey(const std::string& job);
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

store::Mutation PutSchema(uint32_t version = kSchemaVersion);
store::Mutation PutCluster(const std::string& cluster_id);
store::Mutation Put(const v1::CommitRecord& record);
store::Mutation PutFence(const v1::FenceRecord& record);
// The newest start of a coordinator.
store::Mutation PutStart(const StoreIdentity& store);
store::Mutation Put(const v1::JobRecord& record);
// PutGeneration writes the record of a generation without its nodes, PutPlacement that of one node.
store::Mutation PutGeneration(const v1::GenerationRecord& record);
store::Mutation PutPlacement(const v1::GenerationRecord& record, uint32_t node_rank);
store::Mutation Put(const v1::EventRecord& record);
store::Mutation Put(const v1::NodeRecord& record);
store::Mutation Put(const v1::LogTail& tail);
store::Mutation Put(const v1::HistoryRecord& record);
store::Mutation Put(const v1::OwnerRecord& record);
store::Mutation Put(const v1::SecretRecord& record);
store::Mutation Put(const v1::IdentityRecord& record);
store::Mutation Put(const v1::JoinTokenRecord& record);
// Replaces the job's record while its other records are being deleted.
store::Mutation PutForgotten(const JobId& job);
store::Mutation DeleteEvent(const JobId& job, uint64_t sequence);
store::Mutation DeleteNode(const NodeName& node);
store::Mutation DeleteSecret(const std::string& owner, const std::string& name);
store::Mutation DeleteIdentity(const std::string& node);
store::Mutation DeleteJoinToken(const std::string& id);

// Errors: DATA_LOSS, with the key, when the bytes cannot be parsed as this message.
absl::Status ParseRecord(const store::Record& record, google::protobuf::Message& message);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECORDS_H_
