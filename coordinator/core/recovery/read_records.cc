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
       {kSpecPrefix, kSummaryPrefix, kGenerationPrefix, kPlacementPrefix, kEventPrefix,
        kHistoryPrefix, kLogPrefix}) {
    if (absl::ConsumePrefix(&key, prefix)) return JobId(std::string(key.substr(0, key.find('/'))));
  }
  return JobId();
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

// A message that is stored in parts.
struct Parts {
  std::string bytes;
  uint32_t count = 0;
};
using PartsById = std::map<std::string, Parts>;

// `records` are read in the order of their keys.
template <typename Record>
absl::Status ReadPart(const store::Record& stored, PartsById& parts) {
  Record record;
  RETURN_IF_ERROR(ReadRecord(stored, record));
  Parts& of_id = parts[record.id()];
  if (record.part() != of_id.count++) {
    return absl::DataLossError(absl::StrCat("a record before ", stored.key, " is missing"));
  }
  of_id.bytes += record.data();
  return absl::OkStatus();
}

// Returns the bytes of a message that has `count` parts.
absl::StatusOr<const std::string*> FindParts(const PartsById& parts, const std::string& id,
                                             uint32_t count, const char* prefix) {
  static const Parts& none = *new Parts;
  const auto found = parts.find(id);
  const Parts& of_id = found == parts.end() ? none : found->second;
  const uint32_t stored = of_id.count;
  if (stored == count) return &of_id.bytes;
  return absl::DataLossError(
      absl::StrCat("there are ", stored, " records ", prefix, id, ", not ", count));
}

// Reads the specs of jobs; tasks that share one in the store share it in memory.
class Specs {
 public:
  absl::Status AddPart(const store::Record& record) {
    return ReadPart<v1::SpecRecord>(record, parts_);
  }
  absl::StatusOr<StoredSpec> Find(const v1::JobRecord& job) {
    const std::string& id = job.shares_spec() ? job.array_id() : job.job_id();
    ASSIGN_OR_RETURN(const std::string* const bytes,
                     FindParts(parts_, id, job.spec_parts(), kSpecPrefix));
    if (!job.shares_spec()) return ReadSpec(job, *bytes);
    StoredSpec& shared = shared_[id];
    if (shared.spec == nullptr) {
      ASSIGN_OR_RETURN(shared, ReadSpec(job, *bytes));
    }
    return shared;
  }

 private:
  PartsById parts_;
  std::map<std::string, StoredSpec> shared_;  // by the id of the array
};

absl::Status ReadJob(const store::Record& record, Specs& specs, const PartsById& summaries,
                     Records& result) {
  v1::JobRecord stored;
  RETURN_IF_ERROR(ReadRecord(record, stored));
  const JobId id(stored.job_id());
  if (stored.forgotten()) {
    result.forgotten[id].push_back(record.key);
    if (!stored.idempotency_key().empty()) result.kept_keys.push_back(std::move(stored));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const StoredSpec spec, specs.Find(stored));
  ASSIGN_OR_RETURN(const std::string* const summary,
                   FindParts(summaries, stored.job_id(), stored.summary_parts(), kSummaryPrefix));
  ASSIGN_OR_RETURN(result.jobs[id], FromRecord(stored, spec, *summary));
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
    RETURN_IF_ERROR(ReadRecord(record, generation));
    const JobId job(generation.job_id());
    result.generations[job][Generation(generation.generation())] = std::move(generation);
  } else if (absl::StartsWith(record.key, kPlacementPrefix)) {
    v1::PlacementRecord placement;
    RETURN_IF_ERROR(ReadRecord(record, placement));
    placements[{JobId(placement.job_id()), Generation(placement.generation()),
                placement.node_rank()}] = std::move(*placement.mutable_placement());
  } else if (absl::StartsWith(record.key, kEventPrefix)) {
    v1::EventRecord event;
    RETURN_IF_ERROR(ReadRecord(record, event));
    const JobId job(event.event().job_id());
    result.events[job].push_back(FromRecord(event));
  } else if (absl::StartsWith(record.key, kNodePrefix)) {
    v1::NodeRecord node;
    RETURN_IF_ERROR(ReadRecord(record, node));
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
    RETURN_IF_ERROR(ReadRecord(record, history));
    const JobId job(history.job_id());
    result.histories[job] = std::move(history);
  } else if (absl::StartsWith(record.key, kOwnerPrefix)) {
    v1::OwnerRecord& owner = result.owners.emplace_back();
    RETURN_IF_ERROR(ReadRecord(record, owner));
  } else if (absl::StartsWith(record.key, kSecretPrefix)) {
    v1::SecretRecord& secret = result.secrets.emplace_back();
    RETURN_IF_ERROR(ReadRecord(record, secret));
  } else if (absl::StartsWith(record.key, kIdentityPrefix)) {
    v1::IdentityRecord& identity = result.identities.emplace_back();
    RETURN_IF_ERROR(ReadRecord(record, identity));
  } else if (absl::StartsWith(record.key, kJoinTokenPrefix)) {
    v1::JoinTokenRecord& token = result.join_tokens.emplace_back();
    RETURN_IF_ERROR(ReadRecord(record, token));
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

// Checks that each job that has records of this kind exists.
template <typename Table>
absl::Status CheckJobs(const char* kind, const Table& table, const std::map<JobId, Job>& jobs) {
  for (const auto& [id, records] : table) {
    if (jobs.count(id) != 0) continue;
    return absl::DataLossError(absl::StrCat(kind, " without a job: ", id.value()));
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
  RETURN_IF_ERROR(CheckJobs("generation records", records.generations, records.jobs));
  for (const auto& [id, generations] : records.generations) {
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
  RETURN_IF_ERROR(CheckJobs("log records", records.log_tails, records.jobs));
  RETURN_IF_ERROR(CheckJobs("history record", records.histories, records.jobs));
  return CheckJobs("event records", records.events, records.jobs);
}

}  // namespace

absl::StatusOr<Records> ReadRecords(absl::Span<const store::Record> records) {
  Records result;
  Specs specs;
  PartsById summaries;
  for (const store::Record& record : records) {
    if (absl::StartsWith(record.key, kSpecPrefix)) {
      RETURN_IF_ERROR(specs.AddPart(record));
    } else if (absl::StartsWith(record.key, kSummaryPrefix)) {
      RETURN_IF_ERROR(ReadPart<v1::SummaryRecord>(record, summaries));
    }
  }
  std::set<JobId> known;  // jobs, and arrays whose tasks share a spec
  for (const store::Record& record : records) {
    if (!absl::StartsWith(record.key, kJobPrefix)) continue;
    RETURN_IF_ERROR(ReadJob(record, specs, summaries, result));
  }
  for (const auto& [id, job] : result.jobs) {
    known.insert(id);
    if (job.shares_spec) known.insert(JobId(job.status.array_id()));
  }
  Placements placements;
  for (const store::Record& record : records) {
    if (absl::StartsWith(record.key, kJobPrefix)) continue;
    ASSIGN_OR_RETURN(const bool is_meta, ReadMeta(record, result));
    if (is_meta) continue;
    const JobId id = JobOf(record.key);
    const bool is_part =
        absl::StartsWith(record.key, kSpecPrefix) || absl::StartsWith(record.key, kSummaryPrefix);
    if (is_part && known.count(id) != 0) continue;
    // The spec of an array is left when the deletion of its last task was interrupted.
    if (is_part) result.forgotten.try_emplace(id);
    const auto forgotten = result.forgotten.find(id);
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
