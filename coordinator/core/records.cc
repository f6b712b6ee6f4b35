#include "coordinator/core/records.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "common/version.h"

namespace muster::core {
namespace {

constexpr char kJobPrefix[] = "job/";
constexpr char kPlacementPrefix[] = "placement/";
constexpr char kEventPrefix[] = "event/";
constexpr char kNodePrefix[] = "node/";

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

// The job that a record is of, by its key; empty for one of no job.
JobId JobOf(absl::string_view key) {
  for (const absl::string_view prefix : {kGenerationPrefix, kPlacementPrefix, kEventPrefix}) {
    if (absl::ConsumePrefix(&key, prefix)) return JobId(std::string(key.substr(0, key.find('/'))));
  }
  return JobId();
}

absl::Status CheckKey(const store::Record& record, const std::string& expected) {
  if (record.key == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("record ", record.key, " holds what belongs to ", expected));
}

// Ranks are numbered node by node from 0, and nodes are named once.
absl::Status CheckRankMap(const v1::GenerationRecord& record) {
  const std::string key = GenerationKey(record.job_id(), record.generation());
  if (record.node_count() != static_cast<uint32_t>(record.nodes_size())) {
    return absl::DataLossError(absl::StrCat("record ", key, " is of ", record.node_count(),
                                            " nodes, and there are ", record.nodes_size()));
  }
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

using Placements = std::map<std::tuple<JobId, Generation, uint32_t>, v1::NodePlacement>;

absl::Status ReadJob(const store::Record& record, Records& result) {
  v1::JobRecord job;
  RETURN_IF_ERROR(ParseRecord(record, job));
  RETURN_IF_ERROR(CheckKey(record, JobKey(job.job().job_id())));
  const JobId id(job.job().job_id());
  if (job.forgotten()) {
    result.forgotten[id].push_back(record.key);
  } else {
    result.jobs[id] = std::move(job);
  }
  return absl::OkStatus();
}

absl::Status ReadOne(const store::Record& record, Records& result, Placements& placements) {
  if (absl::StartsWith(record.key, kGenerationPrefix)) {
    v1::GenerationRecord generation;
    RETURN_IF_ERROR(ParseRecord(record, generation));
    RETURN_IF_ERROR(CheckKey(record, GenerationKey(generation.job_id(), generation.generation())));
    const JobId job(generation.job_id());
    result.generations[job][Generation(generation.generation())] = std::move(generation);
  } else if (absl::StartsWith(record.key, kPlacementPrefix)) {
    v1::PlacementRecord placement;
    RETURN_IF_ERROR(ParseRecord(record, placement));
    RETURN_IF_ERROR(CheckKey(
        record, PlacementKey(placement.job_id(), placement.generation(), placement.node_rank())));
    placements[{JobId(placement.job_id()), Generation(placement.generation()),
                placement.node_rank()}] = std::move(*placement.mutable_placement());
  } else if (absl::StartsWith(record.key, kEventPrefix)) {
    v1::EventRecord event;
    RETURN_IF_ERROR(ParseRecord(record, event));
    RETURN_IF_ERROR(CheckKey(record, EventKey(event.event().job_id(), event.event().sequence())));
    const JobId job(event.event().job_id());
    result.events[job].push_back(std::move(*event.mutable_event()));
  } else if (absl::StartsWith(record.key, kNodePrefix)) {
    v1::NodeRecord node;
    RETURN_IF_ERROR(ParseRecord(record, node));
    RETURN_IF_ERROR(CheckKey(record, NodeKey(node.name())));
    result.nodes[NodeName(node.name())] = std::move(node);
  } else {
    return absl::DataLossError(absl::StrCat("record ", record.key, " is of no known kind"));
  }
  return absl::OkStatus();
}

// `placements` are in the order of node rank.
absl::Status AddNodes(Placements placements, Records& result) {
  for (auto& [key, placement] : placements) {
    const auto& [job, number, node_rank] = key;
    const auto generations = result.generations.find(job);
    if (generations == result.generations.end() || generations->second.count(number) == 0) {
      return absl::DataLossError(
          absl::StrCat("there are placements of no generation: ",
                       PlacementKey(job.value(), number.value(), node_rank)));
    }
    v1::GenerationRecord& generation = generations->second.at(number);
    if (node_rank != static_cast<uint32_t>(generation.nodes_size())) {
      return absl::DataLossError(absl::StrCat(
          "record ", PlacementKey(job.value(), number.value(), generation.nodes_size()),
          " is missing"));
    }
    *generation.add_nodes() = std::move(placement);
  }
  for (const auto& [id, generations] : result.generations) {
    for (const auto& [number, record] : generations) RETURN_IF_ERROR(CheckRankMap(record));
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

store::Mutation PutGeneration(const v1::GenerationRecord& record) {
  v1::GenerationRecord whole;
  whole.set_job_id(record.job_id());
  whole.set_generation(record.generation());
  whole.set_world_size(record.world_size());
  whole.set_over(record.over());
  whole.set_node_count(record.nodes_size());
  return {GenerationKey(record.job_id(), record.generation()), whole.SerializeAsString()};
}

store::Mutation PutPlacement(const v1::GenerationRecord& record, uint32_t node_rank) {
  v1::PlacementRecord placement;
  placement.set_job_id(record.job_id());
  placement.set_generation(record.generation());
  placement.set_node_rank(node_rank);
  *placement.mutable_placement() = record.nodes(static_cast<int>(node_rank));
  return {PlacementKey(record.job_id(), record.generation(), node_rank),
          placement.SerializeAsString()};
}

store::Mutation Put(const v1::EventRecord& record) {
  return {EventKey(record.event().job_id(), record.event().sequence()), record.SerializeAsString()};
}

store::Mutation Put(const v1::NodeRecord& record) {
  return {NodeKey(record.name()), record.SerializeAsString()};
}

store::Mutation PutForgotten(const JobId& job) {
  v1::JobRecord record;
  record.mutable_job()->set_job_id(job.value());
  record.set_forgotten(true);
  return Put(record);
}

store::Mutation DeleteEvent(const JobId& job, uint64_t sequence) {
  return {EventKey(job.value(), sequence), std::nullopt};
}

store::Mutation DeleteNode(const NodeName& node) { return {NodeKey(node.value()), std::nullopt}; }

std::vector<std::string> KeysOf(const Job& job) {
  const std::string& id = job.job().job_id();
  std::vector<std::string> keys = {JobKey(id)};
  for (const auto& [number, record] : job.past) {
    keys.push_back(GenerationKey(id, number.value()));
    for (int node_rank = 0; node_rank < record.nodes_size(); ++node_rank) {
      keys.push_back(PlacementKey(id, number.value(), node_rank));
    }
  }
  for (const v1::JobEvent& event : job.events) keys.push_back(EventKey(id, event.sequence()));
  return keys;
}

absl::Status ParseRecord(const store::Record& record, google::protobuf::Message& message) {
  if (message.ParseFromString(record.value)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("record ", record.key, " cannot be read"));
}

absl::StatusOr<Records> ReadRecords(absl::Span<const store::Record> records) {
  Records result;
  for (const store::Record& record : records) {
    if (absl::StartsWith(record.key, kJobPrefix)) RETURN_IF_ERROR(ReadJob(record, result));
  }
  Placements placements;
  for (const store::Record& record : records) {
    if (record.key == kSchemaKey || absl::StartsWith(record.key, kJobPrefix)) continue;
    const auto forgotten = result.forgotten.find(JobOf(record.key));
    if (forgotten != result.forgotten.end()) {
      forgotten->second.push_back(record.key);
    } else {
      RETURN_IF_ERROR(ReadOne(record, result, placements));
    }
  }
  RETURN_IF_ERROR(AddNodes(std::move(placements), result));
  for (auto& [id, events] : result.events) {
    std::sort(events.begin(), events.end(), [](const v1::JobEvent& a, const v1::JobEvent& b) {
      return a.sequence() < b.sequence();
    });
  }
  RETURN_IF_ERROR(CheckTogether(result));
  return result;
}

}  // namespace muster::core
