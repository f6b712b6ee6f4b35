#include "worker/agent/generation/rank_set.h"

#include <utility>

#include "absl/algorithm/container.h"

namespace muster::agent {

RankSet::RankSet(const GenerationContext& context, const v1::Launch& launch, Rank::Events events)
    : context_(context), launch_(launch), events_(std::move(events)) {
  events_.on_change = [this](const Rank& rank) { OnChange(rank.placement().rank()); };
  for (const v1::RankPlacement& placement : launch_.ranks()) {
    ranks_.try_emplace(placement.rank(), context_, launch_, placement, events_);
  }
}

Rank* RankSet::Find(uint32_t rank) {
  const auto it = ranks_.find(rank);
  return it == ranks_.end() ? nullptr : &it->second;
}

bool RankSet::IsLive(uint32_t rank) const {
  const auto it = ranks_.find(rank);
  return it != ranks_.end() && !it->second.record().exited();
}

bool RankSet::over() const {
  return absl::c_all_of(ranks_, [](const auto& rank) { return rank.second.record().exited(); });
}

bool RankSet::settled() const {
  return absl::c_all_of(ranks_, [](const auto& rank) { return rank.second.settled(); });
}

std::vector<uint32_t> RankSet::SlotsInUse() const {
  std::vector<uint32_t> slots;
  for (const auto& [number, rank] : ranks_) {
    if (!rank.record().begun() || rank.record().exited()) continue;
    slots.insert(slots.end(), rank.placement().slots().begin(), rank.placement().slots().end());
  }
  return slots;
}

void RankSet::Inspect() {
  for (auto& [number, rank] : ranks_) rank.Inspect();
}

v1::GenerationReport RankSet::Inventory() {
  changed_since_hello_.clear();
  v1::GenerationReport report;
  report.set_job_id(launch_.job_id());
  report.set_generation(launch_.generation());
  for (const auto& [number, rank] : ranks_) *report.add_ranks() = rank.record().Described();
  return report;
}

void RankSet::ResendChanged() {
  changed_.insert(changed_since_hello_.begin(), changed_since_hello_.end());
  SendChanged();
}

void RankSet::OnChange(uint32_t rank) {
  if (changed_.empty()) {
    context_.loop->Post([self = self_] {
      if (*self != nullptr) (*self)->SendChanged();
    });
  }
  changed_.insert(rank);
  changed_since_hello_.insert(rank);
}

void RankSet::SendChanged() {
  if (changed_.empty()) return;
  const std::set<uint32_t> ranks = std::exchange(changed_, {});
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_report();
  report.set_job_id(launch_.job_id());
  report.set_generation(launch_.generation());
  for (const uint32_t rank : ranks) *report.add_ranks() = ranks_.at(rank).record().Described();
  context_.send(std::move(message));
  for (const uint32_t rank : ranks) ranks_.at(rank).SendLogTail();
}

}  // namespace muster::agent
