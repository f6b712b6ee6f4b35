#include "worker/agent/rank/progress_board.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kKeepExited = absl::Minutes(5);

}  // namespace

void ProgressBoard::Update(const std::string& job_id, uint64_t generation,
                           const v1::RankReport& report) {
  absl::MutexLock lock(&mutex_);
  State& state = states_[{job_id, report.rank()}];
  state.entry.generation = generation;
  v1::RankReport& kept = state.entry.report;
  kept.set_rank(report.rank());
  kept.set_phase(report.phase());
  kept.set_pid(report.pid());
  kept.set_memory_bytes(report.memory_bytes());
  *kept.mutable_progress() = report.progress();
  state.changed = true;
  state.forget_at = SteadyTime::Infinite();
}

void ProgressBoard::MarkExited(const std::string& job_id, uint64_t generation, uint32_t rank,
                               SteadyTime now) {
  absl::MutexLock lock(&mutex_);
  const auto it = states_.find({job_id, rank});
  if (it == states_.end() || it->second.entry.generation != generation) return;
  it->second.changed = false;
  it->second.forget_at = now + kKeepExited;
}

std::vector<v1::GenerationReport> ProgressBoard::TakeChanged() {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::GenerationReport> reports;
  for (auto& [key, state] : states_) {
    if (!state.changed) continue;
    state.changed = false;
    if (reports.empty() || reports.back().job_id() != key.first ||
        reports.back().generation() != state.entry.generation) {
      reports.emplace_back();
      reports.back().set_job_id(key.first);
      reports.back().set_generation(state.entry.generation);
    }
    *reports.back().add_ranks() = state.entry.report;
  }
  return reports;
}

std::map<ProgressBoard::Key, ProgressBoard::Entry> ProgressBoard::Snapshot(SteadyTime now) {
  absl::MutexLock lock(&mutex_);
  std::map<Key, Entry> snapshot;
  for (auto it = states_.begin(); it != states_.end();) {
    if (it->second.forget_at <= now) {
      it = states_.erase(it);
      continue;
    }
    snapshot[it->first] = it->second.entry;
    ++it;
  }
  return snapshot;
}

void ProgressBoard::SetSlotsInUse(std::map<std::string, uint32_t> slots) {
  absl::MutexLock lock(&mutex_);
  slots_in_use_ = std::move(slots);
}

std::map<std::string, uint32_t> ProgressBoard::SlotsInUse() {
  absl::MutexLock lock(&mutex_);
  return slots_in_use_;
}

}  // namespace muster::agent
