// LifeCycle: continues generations that the store has lost.
#include <set>
#include <string>
#include <utility>

#include "coordinator/core/life_cycle.h"
#include "coordinator/core/node_environments.h"
#include "coordinator/core/reasons.h"

namespace muster::core {

void LifeCycle::TakeOver(Job& job, std::optional<v1::GenerationRecord> record,
                         std::string message) {
  jobs_.AddEvent(job, events::kRecovered, message);
  // They were met when the generation started.
  jobs_.DropDependencies(job);
  if (job.generation.has_value()) {
    // The newer one was launched when this one had ended, or had been abandoned.
    const bool cancelled = job.state() == v1::STOPPING && job.ending.outcome != v1::FAILED;
    if (!cancelled) StopAndRequeue(job, reasons::kRecovered, message);
    for (RankState& rank : job.generation->ranks) Abandon(job, rank);
    Advance(job);
  }
  if (IsTerminal(job.state())) return;
  if (!record.has_value()) {
    if (job.state() != v1::QUEUED) return;  // held
    RemoveFromQueue(job);
    admission_.Enter(job);
    return;
  }
  if (job.state() == v1::HELD) {
    jobs_.Transition(job, v1::QUEUED, reasons::kRecovered, message);
  }
  RemoveFromQueue(job);
  jobs_.BeginGeneration(job, *std::move(record));
  jobs_.histories().BeginGeneration(job, EnvironmentsOf(job.generation->record, nodes_));
  jobs_.Transition(job, v1::STARTING, reasons::kRecovered, std::move(message));
  Resume(job);
}

void LifeCycle::Abandon(Job& job, RankState& rank) {
  GenerationState& generation = *job.generation;
  const NodeName name(generation.placement(rank.node_rank).node());
  const Node& node = nodes_.at(name);
  if (rank.gone()) return;
  if (!node.session.has_value() || !node.conflict.empty()) return LoseRank(job, rank);
  generation.MarkLost(rank);
  generation.RecordOf(rank).set_lost(true);
  jobs_.MarkPlacement(job, rank.node_rank);
  const auto known = node.leftovers.find({job.id(), generation.number()});
  std::set<uint32_t> leftovers =
      known == node.leftovers.end() ? std::set<uint32_t>() : known->second;
  leftovers.insert(rank.rank);
  nodes_.SetLeftovers(name, job.id(), generation.number(), std::move(leftovers));
}

}  // namespace muster::core
