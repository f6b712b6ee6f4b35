#include "coordinator/core/records.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/version.h"

namespace muster::core {

std::string StartKey(uint64_t number) { return absl::StrFormat("%s%010d", kStartPrefix, number); }
std::string StagedKey(uint64_t commit_index, uint32_t number) {
  return absl::StrFormat("%s%020d/%06d", kStagedPrefix, commit_index, number);
}
std::string SpecKey(const std::string& id, uint32_t part) {
  return absl::StrFormat("%s%s/%04d", kSpecPrefix, id, part);
}
std::string SummaryKey(const std::string& job, uint32_t part) {
  return absl::StrFormat("%s%s/%04d", kSummaryPrefix, job, part);
}
std::string JobKey(const std::string& job) { return absl::StrCat(kJobPrefix, job); }
std::string GenerationKey(const std::string& job, uint64_t generation) {
  return absl::StrFormat("%s%s/%010d", kGenerationPrefix, job, generation);
}
std::string PlacementKey(const std::string& job, uint64_t generation, uint32_t node_rank) {
  return absl::StrFormat("%s%s/%010d/%010d", kPlacementPrefix, job, generation, node_rank);
}
std::string EventKey(const std::string& job, uint64_t sequence) {
  return absl::StrFormat("%s%s/%010d", kEventPrefix, job, sequence);
}
std::string NodeKey(const std::string& node) { return absl::StrCat(kNodePrefix, node); }
std::string LogTailKey(const std::string& job, uint64_t generation, uint32_t rank) {
  return absl::StrFormat("%s%s/%010d/%010d", kLogPrefix, job, generation, rank);
}
std::string HistoryKey(const std::string& job) { return absl::StrCat(kHistoryPrefix, job); }
std::string OwnerKey(const std::string& owner) { return absl::StrCat(kOwnerPrefix, owner); }
std::string SecretKey(const std::string& owner, const std::string& name) {
  return absl::StrCat(kSecretPrefix, owner, "/", name);
}
std::string IdentityKey(const std::string& node) { return absl::StrCat(kIdentityPrefix, node); }
std::string JoinTokenKey(const std::string& id) { return absl::StrCat(kJoinTokenPrefix, id); }

store::Mutation PutSchema(uint32_t version) {
  v1::SchemaRecord schema;
  schema.set_version(version);
  return {kSchemaKey, schema.SerializeAsString()};
}

store::Mutation PutCluster(const std::string& cluster_id) {
  v1::ClusterRecord cluster;
  cluster.set_cluster_id(cluster_id);
  return {kClusterKey, cluster.SerializeAsString()};
}

store::Mutation PutStart(const StoreIdentity& store) {
  const CoordinatorStart& start = store.starts.back();
  v1::StartRecord record;
  record.set_id(start.id);
  record.set_first_commit(start.first_commit);
  record.set_machine_id(start.machine_id);
  record.set_address(start.address);
  return {StartKey(store.starts.size()), record.SerializeAsString()};
}

store::Mutation PutGeneration(const v1::GenerationRecord& record) {
  v1::GenerationRecord whole;
  whole.set_job_id(record.job_id());
  whole.set_generation(record.generation());
  whole.set_world_size(record.world_size());
  whole.set_over(record.over());
  whole.set_node_count(record.nodes_size());
  whole.set_gpu_slots(record.gpu_slots());
  whole.set_idle_cpu_slots(record.idle_cpu_slots());
  whole.set_idle_gpu_slots(record.idle_gpu_slots());
  whole.set_overdue(record.overdue());
  if (record.has_job_lease()) *whole.mutable_job_lease() = record.job_lease();
  return Put(whole);
}

store::Mutation PutPlacement(const v1::GenerationRecord& record, uint32_t node_rank) {
  v1::PlacementRecord placement;
  placement.set_job_id(record.job_id());
  placement.set_generation(record.generation());
  placement.set_node_rank(node_rank);
  *placement.mutable_placement() = record.nodes(static_cast<int>(node_rank));
  return Put(placement);
}

store::Mutation PutLogTail(const v1::LogTail& tail) {
  v1::LogTailRecord record;
  record.set_tail(tail.SerializeAsString());
  return {LogTailKey(tail.job_id(), tail.generation(), tail.rank()), record.SerializeAsString()};
}

store::Mutation PutForgotten(const JobId& job) {
  v1::JobRecord record;
  record.set_job_id(job.value());
  record.set_forgotten(true);
  return Put(record);
}

store::Mutation DeleteEvent(const JobId& job, uint64_t sequence) {
  return {EventKey(job.value(), sequence), std::nullopt};
}

store::Mutation DeleteNode(const NodeName& node) { return {NodeKey(node.value()), std::nullopt}; }

store::Mutation DeleteSecret(const std::string& owner, const std::string& name) {
  return {SecretKey(owner, name), std::nullopt};
}

store::Mutation DeleteIdentity(const std::string& node) {
  return {IdentityKey(node), std::nullopt};
}

store::Mutation DeleteJoinToken(const std::string& id) { return {JoinTokenKey(id), std::nullopt}; }

absl::Status ParseRecord(const store::Record& record, google::protobuf::Message& message) {
  if (message.ParseFromString(record.value)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("record ", record.key, " cannot be read"));
}

absl::Status CheckKey(const store::Record& record, const std::string& expected) {
  if (record.key == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("record ", record.key, " has the contents of record ", expected));
}

}  // namespace muster::core
