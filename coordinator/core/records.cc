#include "coordinator/core/records.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "common/version.h"
#include "coordinator/core/job.h"

namespace muster::core {
namespace {

constexpr char kSchemaKey[] = "meta/schema";
constexpr char kJobPrefix[] = "job/";
constexpr char kGenerationPrefix[] = "generation/";
constexpr char kEventPrefix[] = "event/";
constexpr char kNodePrefix[] = "node/";

std::string JobKey(const std::string& job) { return absl::StrCat(kJobPrefix, job); }
std::string GenerationKey(const std::string& job, uint64_t generation) {
  return absl::StrFormat("%s%s/%010d", kGenerationPrefix, job, generation);
}
std::string EventKey(const std::string& job, uint64_t sequence) {
  return absl::StrFormat("%s%s/%010d", kEventPrefix, job, sequence);
}
std::string NodeKey(const std::string& node) { return absl::StrCat(kNodePrefix, node); }

template <typename Message>
absl::Status Parse(const store::Record& record, Message& message) {
  if (message.ParseFromString(record.value)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("record ", record.key, " cannot be read"));
}

absl::Status CheckKey(const store::Record& record, const std::string& expected) {
  if (record.key == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("record ", record.key, " holds what belongs to ", expected));
}

absl::Status ReadSchema(const store::Record& record) {
  v1::SchemaRecord schema;
  RETURN_IF_ERROR(Parse(record, schema));
  if (schema.version() > kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the store has schema ", schema.version(),
                     ", written by a newer Muster; this one reads up to ", kSchemaVersion));
  }
  return absl::OkStatus();
}

// Ranks are numbered node by node from 0, and nodes are named once.
absl::Status CheckRankMap(const v1::GenerationRecord& record, const std::string& key) {
  std::set<std::string> nodes;
  uint32_t next = 0;
  for (const v1::NodePlacement& node : record.nodes()) {
    if (node.ranks().empty() || !nodes.insert(node.node()).second) {
      return absl::DataLossError(absl::StrCat("record ", key, " has a damaged rank map"));
    }
    for (const v1::RankRecord& rank : node.ranks()) {
      if (rank.rank() != next++) {
        return absl::DataLossError(absl::StrCat("record ", key, " has a damaged rank map"));
      }
    }
  }
  if (next == 0 || next != record.world_size()) {
    return absl::DataLossError(
        absl::StrCat("record ", key, " has ", next, " ranks of ", record.world_size()));
  }
  return absl::OkStatus();
}

absl::Status ReadOne(const store::Record& record, Records& result) {
  if (record.key == kSchemaKey) {
    result.has_schema = true;
    return ReadSchema(record);
  }
  if (absl::StartsWith(record.key, kJobPrefix)) {
    v1::JobRecord job;
    RETURN_IF_ERROR(Parse(record, job));
    RETURN_IF_ERROR(CheckKey(record, JobKey(job.job().job_id())));
    result.jobs[JobId(job.job().job_id())] = std::move(job);
  } else if (absl::StartsWith(record.key, kGenerationPrefix)) {
    v1::GenerationRecord generation;
    RETURN_IF_ERROR(Parse(record, generation));
    RETURN_IF_ERROR(CheckKey(record, GenerationKey(generation.job_id(), generation.generation())));
    RETURN_IF_ERROR(CheckRankMap(generation, record.key));
    const JobId job(generation.job_id());
    result.generations[job][Generation(generation.generation())] = std::move(generation);
  } else if (absl::StartsWith(record.key, kEventPrefix)) {
    v1::EventRecord event;
    RETURN_IF_ERROR(Parse(record, event));
    RETURN_IF_ERROR(CheckKey(record, EventKey(event.event().job_id(), event.event().sequence())));
    const JobId job(event.event().job_id());
    result.events[job].push_back(std::move(*event.mutable_event()));
  } else if (absl::StartsWith(record.key, kNodePrefix)) {
    v1::NodeRecord node;
    RETURN_IF_ERROR(Parse(record, node));
    RETURN_IF_ERROR(CheckKey(record, NodeKey(node.name())));
    result.nodes[NodeName(node.name())] = std::move(node);
  } else {
    return absl::DataLossError(absl::StrCat("record ", record.key, " is of no known kind"));
  }
  return absl::OkStatus();
}

// An active job has exactly one generation that lives, its newest; any other job has none.
absl::Status CheckGenerations(const v1::Job& job,
                              const std::map<Generation, v1::GenerationRecord>& generations) {
  for (const auto& [number, record] : generations) {
    if (number.value() > job.generation()) {
      return absl::DataLossError(absl::StrCat("job ", job.job_id(), " is at generation ",
                                              job.generation(), ", yet there is a record of ",
                                              number.value()));
    }
    const bool may_live = IsActive(job.state()) && number == Generation(job.generation());
    if (record.over() == may_live) {
      return absl::DataLossError(absl::StrCat(
          "job ", job.job_id(), " is ", v1::JobState_Name(job.state()), ", yet its generation ",
          number.value(), record.over() ? " is over" : " lives"));
    }
  }
  if (job.generation() != 0 && generations.count(Generation(job.generation())) == 0) {
    return absl::DataLossError(
        absl::StrCat("job ", job.job_id(), " has no record of generation ", job.generation()));
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const Records& records) {
  std::set<std::tuple<std::string, uint32_t>> taken;
  for (const auto& [id, record] : records.jobs) {
    const auto generations = records.generations.find(id);
    RETURN_IF_ERROR(
        CheckGenerations(record.job(), generations == records.generations.end()
                                           ? std::map<Generation, v1::GenerationRecord>()
                                           : generations->second));
  }
  for (const auto& [id, generations] : records.generations) {
    if (records.jobs.count(id) == 0) {
      return absl::DataLossError(absl::StrCat("there are generations of no job: ", id.value()));
    }
    for (const auto& [number, record] : generations) {
      if (record.over()) continue;
      for (const v1::NodePlacement& node : record.nodes()) {
        for (const v1::RankRecord& rank : node.ranks()) {
          if (rank.exited() || rank.lost()) continue;
          for (const uint32_t slot : rank.slots()) {
            if (taken.emplace(node.node(), slot).second) continue;
            return absl::DataLossError(
                absl::StrCat("slot ", slot, " of ", node.node(), " is given twice"));
          }
        }
      }
    }
  }
  for (const auto& [id, events] : records.events) {
    if (records.jobs.count(id) == 0) {
      return absl::DataLossError(absl::StrCat("there are events of no job: ", id.value()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

store::Mutation PutSchema() {
  v1::SchemaRecord schema;
  schema.set_version(kSchemaVersion);
  return {kSchemaKey, schema.SerializeAsString()};
}

store::Mutation Put(const v1::JobRecord& record) {
  return {JobKey(record.job().job_id()), record.SerializeAsString()};
}

store::Mutation Put(const v1::GenerationRecord& record) {
  return {GenerationKey(record.job_id(), record.generation()), record.SerializeAsString()};
}

store::Mutation Put(const v1::EventRecord& record) {
  return {EventKey(record.event().job_id(), record.event().sequence()), record.SerializeAsString()};
}

store::Mutation Put(const v1::NodeRecord& record) {
  return {NodeKey(record.name()), record.SerializeAsString()};
}

store::Mutation DeleteEvent(const JobId& job, uint64_t sequence) {
  return {EventKey(job.value(), sequence), std::nullopt};
}

store::Mutation DeleteNode(const NodeName& node) { return {NodeKey(node.value()), std::nullopt}; }

absl::StatusOr<Records> ReadRecords(absl::Span<const store::Record> records) {
  Records result;
  // A newer schema may have records that this one cannot read, and is to be told from damage.
  for (const store::Record& record : records) {
    if (record.key == kSchemaKey) RETURN_IF_ERROR(ReadOne(record, result));
  }
  if (!result.has_schema && !records.empty()) {
    return absl::DataLossError("the store has records but no schema");
  }
  for (const store::Record& record : records) {
    if (record.key != kSchemaKey) RETURN_IF_ERROR(ReadOne(record, result));
  }
  for (auto& [id, events] : result.events) {
    std::sort(events.begin(), events.end(), [](const v1::JobEvent& a, const v1::JobEvent& b) {
      return a.sequence() < b.sequence();
    });
  }
  RETURN_IF_ERROR(CheckTogether(result));
  return result;
}

}  // namespace muster::core
