#include "coordinator/core/lease_answer.h"

#include <algorithm>
#include <optional>

#include "common/proto_time.h"
#include "coordinator/core/jobs/job_lease.h"

namespace muster::core {
namespace {

// Whether ranks on the node still belong to the generation.
bool HasRanksOn(const Job& job, uint64_t generation, const NodeName& node) {
  if (!job.generation.has_value() || job.generation->number().value() != generation) return false;
  const std::optional<uint32_t> node_rank = job.generation->NodeRank(node);
  if (!node_rank.has_value()) return false;
  const auto [first, end] = job.generation->RanksOf(*node_rank);
  return std::any_of(job.generation->ranks.begin() + first, job.generation->ranks.begin() + end,
                     [](const RankState& rank) { return !rank.lost; });
}

}  // namespace

v1::LeaseAnswer AnswerLease(const v1::LeaseQuestion& question, const JobTable& jobs,
                            const NodeTable& nodes, const Context& context) {
  v1::LeaseAnswer answer;
  answer.set_id(question.id());
  answer.set_cluster_id(context.store.cluster_id);
  answer.set_term(context.store.term());
  // Workers of earlier builds do not name a start.
  const std::string& start = question.coordinator_start();
  answer.set_commit_index(start.empty() ? context.store.commit_index
                                        : context.store.LastCommitOf(start));
  const NodeName name(question.node_name());
  const Node* const node = nodes.Find(name);
  const bool replaced = node == nullptr || node->IsFenced(Incarnation(question.incarnation()));
  for (const v1::LeasedGeneration& asked : question.generations()) {
    const Job* const job = jobs.Find(JobId(asked.job_id()));
    if (job == nullptr) continue;
    v1::LeasedGeneration& leased = *answer.add_generations();
    leased.set_job_id(asked.job_id());
    leased.set_generation(asked.generation());
    leased.set_lost(replaced || !HasRanksOn(*job, asked.generation(), name));
    if (leased.lost()) continue;
    const absl::Duration lease = LeaseOf(*job, context.options);
    const absl::Duration left = node->lease_start + lease - context.now.steady;
    // A lease that was extended (NodeTable::ExtendLeases) ends earlier once the node is heard again
    // or the coordinator restarts.
    *leased.mutable_time_left() = ToProto(std::clamp(left, absl::ZeroDuration(), lease));
  }
  return answer;
}

}  // namespace muster::core
