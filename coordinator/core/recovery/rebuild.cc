#include "coordinator/core/recovery/rebuild.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

// One node's part of a generation.
struct Part {
  const NodeRecords* node = nullptr;
  const v1::Launch* launch = nullptr;
  const v1::GenerationReport* report = nullptr;
};

v1::NodePlacement ToPlacement(const Part& part) {
  std::map<uint32_t, const v1::RankReport*> reports;
  for (const v1::RankReport& rank : part.report->ranks()) reports[rank.rank()] = &rank;
  v1::NodePlacement placement;
  placement.set_node(part.node->node);
  placement.set_incarnation(part.node->incarnation);
  placement.set_address(part.node->address);
  for (const v1::RankPlacement& rank : part.launch->ranks()) {
    v1::RankRecord& record = *placement.add_ranks();
    record.set_rank(rank.rank());
    record.set_local_rank(rank.local_rank());
    *record.mutable_slots() = rank.slots();
    const auto report = reports.find(rank.rank());
    if (report == reports.end() || report->second->phase() != v1::EXITED) continue;
    record.set_exited(true);
    *record.mutable_exit() = ToRecord(report->second->exit());
  }
  const bool any_exited = std::any_of(placement.ranks().begin(), placement.ranks().end(),
                                      [](const v1::RankRecord& rank) { return rank.exited(); });
  if (any_exited && part.report->passed_barriers_size() <= limits::kRecordedBarrierGroups) {
    v1::PassedBarriersRecord& record = *placement.mutable_passed_barriers();
    for (const v1::BarrierId& passed : part.report->passed_barriers()) {
      v1::PassedBarriersRecord::Barrier& barrier = *record.add_barriers();
      barrier.set_group(passed.group());
      barrier.set_sequence(passed.sequence());
    }
  }
  std::sort(placement.mutable_ranks()->begin(), placement.mutable_ranks()->end(),
            [](const v1::RankRecord& a, const v1::RankRecord& b) { return a.rank() < b.rank(); });
  return placement;
}

// Returns the generation, if `parts`, by node rank, are all its nodes and have all its ranks,
// numbered node by node.
std::optional<v1::GenerationRecord> ToGeneration(const std::map<uint32_t, Part>& parts) {
  const v1::Launch& launch = *parts.begin()->second.launch;
  if (parts.size() != launch.node_count()) return std::nullopt;
  v1::GenerationRecord record;
  record.set_job_id(launch.job_id());
  record.set_generation(launch.generation());
  record.set_world_size(launch.world_size());
  record.set_node_count(launch.node_count());
  uint32_t next = 0;
  for (const auto& [node_rank, part] : parts) {
    if (node_rank != static_cast<uint32_t>(record.nodes_size())) return std::nullopt;
    if (part.launch->world_size() != launch.world_size() || part.launch->ranks().empty()) {
      return std::nullopt;
    }
    *record.add_nodes() = ToPlacement(part);
    for (const v1::RankRecord& rank : record.nodes(static_cast<int>(node_rank)).ranks()) {
      if (rank.rank() != next++) return std::nullopt;
    }
  }
  if (next != launch.world_size()) return std::nullopt;
  return record;
}

Job ToJob(const v1::Launch& launch) {
  Job job;
  v1::Job& status = job.status;
  status.set_job_id(launch.job_id());
  job.SetSpec(launch.spec());
  status.set_owner(launch.owner());
  status.set_array_id(launch.array_id());
  status.set_array_index(launch.array_index());
  status.set_array_count(launch.array_count());
  status.set_state(v1::QUEUED);
  status.set_reason(reasons::kRecovered);
  status.set_restarts(launch.restarts());
  if (!launch.checkpoint_dir().empty()) {
    status.mutable_checkpoint()->set_dir(launch.checkpoint_dir());
    status.mutable_checkpoint()->set_shared(true);
  }
  job.highest_generation = launch.generation();
  return job;
}

std::string Summarize(const std::map<uint32_t, Part>& parts, bool complete) {
  const v1::Launch& launch = *parts.begin()->second.launch;
  std::vector<std::string> names;
  for (const auto& [node_rank, part] : parts) names.push_back(part.node->node);
  const std::string reported = absl::StrCat("generation ", launch.generation(), " was reported by ",
                                            absl::StrJoin(names, ", "));
  if (complete) return absl::StrCat(reported, "; its ranks continue");
  return absl::StrCat(reported, ", but has ranks on ", launch.node_count(),
                      launch.node_count() == 1 ? " node" : " nodes",
                      "; its ranks are stopped, and the job is queued again");
}

}  // namespace

std::vector<RebuiltJob> RebuildJobs(const std::vector<NodeRecords>& nodes) {
  // By job, generation and node rank.
  std::map<std::string, std::map<uint64_t, std::map<uint32_t, Part>>> jobs;
  for (const NodeRecords& node : nodes) {
    const v1::JobRecords& records = node.records;
    const int count = std::min(records.launches_size(), records.reports_size());
    for (int i = 0; i < count; ++i) {
      const v1::Launch& launch = records.launches(i);
      jobs[launch.job_id()][launch.generation()].emplace(launch.node_rank(),
                                                         Part{&node, &launch, &records.reports(i)});
    }
  }
  std::vector<RebuiltJob> rebuilt;
  for (const auto& [id, generations] : jobs) {
    const auto& [number, parts] = *generations.rbegin();
    RebuiltJob& job = rebuilt.emplace_back();
    job.job = ToJob(*parts.begin()->second.launch);
    job.generation = number;
    job.record = ToGeneration(parts);
    job.summary = Summarize(parts, job.record.has_value());
    job.job.status.set_message(job.summary);
  }
  return rebuilt;
}

}  // namespace muster::core
