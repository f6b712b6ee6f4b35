#include "coordinator/core/recovery/read_records.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

// Returns the job that the record belongs to, taken from its key; empty for records that belong to
// no job.
JobId JobOf(absl::string_view key) {
  for (const absl::string_view prefix :
       {kGenerationPrefix, kPlacementPrefix, kEventPrefix, kHistoryPrefix, kLogPrefix}) {
    if (absl::ConsumePrefix(&key, prefix)) return JobId(std::string(key.substr(0, key.find('/'))));
  }
  return JobId();
}

absl::Status CheckKey(const store::Record& record, const std::string& expected) {
  if (record.key == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("record ", record.key, " has the contents of record ", expected));
}

// Checks that ranks are numbered node by node from 0 and that each node appears once.
absl::Status CheckRankMap(const v1::GenerationRecord& record) {
  const std::string key = GenerationKey(record.job_id(), record.generation());
  if (record.node_count() != static_cast<uint32_t>(record.nodes_size())) {
    return absl::DataLossError(absl::StrCat("record ", key, " has ", record.node_count(),
                                            " nodes, but there are ", record.nodes_size(),
                                            " placement records"));
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
    return absl::DataLossError(absl::StrCat("record ", key, " has ", next,
                                            " ranks, but world size ", record.world_size()));
  }
  return absl::OkStatus();
}

using Placements = std::map<std::tuple<JobId, Generation, uint32_t>, v1::NodePlacement>;

absl::Status ReadJob(const store::Record& record, Records& result) {
  v1::JobRecord stored;
  RETURN_IF_ERROR(ParseRecord(record, stored));
  RETURN_IF_ERROR(CheckKey(record, JobKey(stored.job_id())));
  const JobId id(stored.job_id());
  if (stored.forgotten()) {
    result.forgotten[id].push_back(record.key);
  } else {
    ASSIGN_OR_RETURN(result.jobs[id], FromRecord(stored));
  }
  return absl::OkStatus();
}

// Reads the records about the store itself; returns whether the record is one of them.
absl::StatusOr<bool> ReadMeta(const store::Record& record, Records& result) {
  StoreIdentity& store = result.store;
  if (record.key == kClusterKey) {
    v1::ClusterRecord cluster;
    RETURN_IF_ERROR(ParseRecord(record, cluster));
    store.cluster_id = cluster.cluster_id();
  } else if (record.key == kCommitKey) {
    RETURN_IF_ERROR(ParseRecord(record, result.last_commit));
    store.commit_index = result.last_commit.index();
  } else if (absl::StartsWith(record.key, kStartPrefix)) {
    v1::StartRecord start;
    RETURN_IF_ERROR(ParseRecord(record, start));
    RETURN_IF_ERROR(CheckKey(record, StartKey(store.starts.size() + 1)));
    store.starts.push_back({start.id(), start.first_commit(), start.machine_id(), start.address()});
  } else if (record.key == kFenceKey) {
    RETURN_IF_ERROR(ParseRecord(record, result.fence));
  } else {
    return record.key == kSchemaKey;
  }
  return true;
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
    result.events[job].push_back(FromRecord(event));
  } else if (absl::StartsWith(record.key, kNodePrefix)) {
    v1::NodeRecord node;
    RETURN_IF_ERROR(ParseRecord(record, node));
    RETURN_IF_ERROR(CheckKey(record, NodeKey(node.name())));
    result.nodes[NodeName(node.name())] = std::move(node);
  } else if (absl::StartsWith(record.key, kLogPrefix)) {
    v1::LogTailRecord stored;
    v1::LogTail tail;
    RETURN_IF_ERROR(ParseRecord(record, stored));
    RETURN_IF_ERROR(ParseRecord({record.key, stored.tail()}, tail));
    RETURN_IF_ERROR(CheckKey(record, LogTailKey(tail.job_id(), tail.generation(), tail.rank())));
    const JobId job(tail.job_id());
    result.log_tails[job].push_back(std::move(tail));
  } else if (absl::StartsWith(record.key, kHistoryPrefix)) {
    v1::HistoryRecord history;
    RETURN_IF_ERROR(ParseRecord(record, history));
    RETURN_IF_ERROR(CheckKey(record, HistoryKey(history.job_id())));
    const JobId job(history.job_id());
    result.histories[job] = std::move(history);
  } else if (absl::StartsWith(record.key, kOwnerPrefix)) {
    v1::OwnerRecord& owner = result.owners.emplace_back();
    RETURN_IF_ERROR(ParseRecord(record, owner));
    RETURN_IF_ERROR(CheckKey(record, OwnerKey(owner.name())));
  } else if (absl::StartsWith(record.key, kSecretPrefix)) {
    v1::SecretRecord& secret = result.secrets.emplace_back();
    RETURN_IF_ERROR(ParseRecord(record, secret));
    RETURN_IF_ERROR(CheckKey(record, SecretKey(secret.owner(), secret.name())));
  } else if (absl::StartsWith(record.key, kIdentityPrefix)) {
    v1::IdentityRecord& identity = result.identities.emplace_back();
    RETURN_IF_ERROR(ParseRecord(record, identity));
    RETURN_IF_ERROR(CheckKey(record, IdentityKey(identity.node())));
  } else if (absl::StartsWith(record.key, kJoinTokenPrefix)) {
    v1::JoinTokenRecord& token = result.join_tokens.emplace_back();
    RETURN_IF_ERROR(ParseRecord(record, token));
    RETURN_IF_ERROR(CheckKey(record, JoinTokenKey(token.id())));
  } else {
    return absl::DataLossError(absl::StrCat("record ", record.key, " has an unknown kind"));
  }
  return absl::OkStatus();
}

// `placements` are sorted by node rank.
absl::Status AddNodes(Placements placements, Records& result) {
  for (auto& [key, placement] : placements) {
    const auto& [job, number, node_rank] = key;
    const auto generations = result.generations.find(job);
    if (generations == result.generations.end() || generations->second.count(number) == 0) {
      return absl::DataLossError(
          absl::StrCat("placement record without a generation: ",
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

// Checks that an active job has exactly one living generation, its newest, and any other job none.
absl::Status CheckGenerations(const v1::Job& job,
                              const std::map<Generation, v1::GenerationRecord>& generations) {
  for (const auto& [number, record] : generations) {
    if (number.value() > job.generation()) {
      return absl::DataLossError(
          absl::StrCat("job ", job.job_id(), " is at generation ", job.generation(),
                       ", but there is a record of generation ", number.value()));
    }
    const bool may_live = IsActive(job.state()) && number == Generation(job.generation());
    if (record.over() == may_live) {
      return absl::DataLossError(absl::StrCat(
          "job ", job.job_id(), " is ", v1::JobState_Name(job.state()), ", but its generation ",
          number.value(), record.over() ? " has ended" : " has not ended"));
    }
  }
  if (job.generation() != 0 && generations.count(Generation(job.generation())) == 0) {
    return absl::DataLossError(
        absl::StrCat("job ", job.job_id(), " has no record of generation ", job.generation()));
  }
  return absl::OkStatus();
}

absl::Status CheckConsistency(const Records& records) {
  std::set<std::tuple<std::string, uint32_t>> taken;
  for (const auto& [id, job] : records.jobs) {
    const auto generations = records.generations.find(id);
    RETURN_IF_ERROR(CheckGenerations(job.status, generations == records.generations.end()
                                                     ? std::map<Generation, v1::GenerationRecord>()
                                                     : generations->second));
  }
  for (const auto& [id, generations] : records.generations) {
    if (records.jobs.count(id) == 0) {
      return absl::DataLossError(absl::StrCat("generation records without a job: ", id.value()));
    }
    for (const auto& [number, record] : generations) {
      if (record.over()) continue;
      for (const v1::NodePlacement& node : record.nodes()) {
        for (const v1::RankRecord& rank : node.ranks()) {
          if (rank.exited() || rank.lost()) continue;
          for (const uint32_t slot : rank.slots()) {
            if (taken.emplace(node.node(), slot).second) continue;
            return absl::DataLossError(
                absl::StrCat("slot ", slot, " of ", node.node(), " is assigned twice"));
          }
        }
      }
    }
  }
  for (const auto& [id, tails] : records.log_tails) {
    if (records.jobs.count(id) == 0) {
      return absl::DataLossError(absl::StrCat("log records without a job: ", id.value()));
    }
  }
  for (const auto& [id, history] : records.histories) {
    if (records.jobs.count(id) == 0) {
      return absl::DataLossError(absl::StrCat("history record without a job: ", id.value()));
    }
  }
  for (const auto& [id, events] : records.events) {
    if (records.jobs.count(id) == 0) {
      return absl::DataLossError(absl::StrCat("event records without a job: ", id.value()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Records> ReadRecords(absl::Span<const store::Record> records) {
  Records result;
  for (const store::Record& record : records) {
    if (absl::StartsWith(record.key, kJobPrefix)) RETURN_IF_ERROR(ReadJob(record, result));
  }
  Placements placements;
  for (const store::Record& record : records) {
    if (absl::StartsWith(record.key, kJobPrefix)) continue;
    ASSIGN_OR_RETURN(const bool is_meta, ReadMeta(record, result));
    if (is_meta) continue;
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
  RETURN_IF_ERROR(CheckConsistency(result));
  return result;
}

}  // namespace muster::core
