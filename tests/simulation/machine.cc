#include "tests/simulation/machine.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::simulation {

Machine::Machine(World& world, Coordinator& coordinator, Options options)
    : world_(world),
      coordinator_(coordinator),
      options_(std::move(options)),
      is_old_(world.mixes_versions && world.random.Chance(0.5)) {}

std::string Machine::Describe() const {
  std::string text = absl::StrCat("machine ", id(), " (", node(), ")");
  for (const auto& [key, holding] : holdings_) {
    for (const auto& [number, rank] : holding.ranks) {
      absl::StrAppend(&text, "\n  ", key.first, " generation ", key.second, " rank ", number,
                      " stage ", static_cast<int>(rank.stage), " barrier ", rank.barrier, " ",
                      rank.report.ShortDebugString());
    }
  }
  return text;
}

void Machine::StartWorker() {
  if (worker_up_ || retired_) return;
  worker_up_ = true;
  off_ = false;
  leaving_ = false;
  ++worker_;
  worker_paused_until_ = SteadyTime();
  incarnation_ = (options_.id << 32) + worker_;
  world_.Note(absl::StrCat("worker of ", node(), " starts on machine ", id()));
  for (auto& [key, holding] : holdings_) holding.world.reset();
  const SteadyTime now = world_.scheduler.now().steady;
  promises_.emplace(stored_promises_, absl::StrCat("boot-", boot_), now,
                    [this](const v1::PromiseRecord& record) {
                      stored_promises_ = record;
                      if (world_.mutation == Mutation::kForgetPromises) {
                        stored_promises_.clear_vouchers();
                        stored_promises_.clear_bans();
                      }
                      return absl::OkStatus();
                    });
  keeper_.emplace(node(), MakeLeaseOutside(), now);
  witness_.emplace(node(), MakeWitnessOutside(), *keeper_, *promises_);
  replies_.clear();
  // There is no such file: StoreIdentity keeps what it would contain.
  membership_.emplace("/nonexistent/cluster");
  RestoreIdentity();
  Connect();
  SendHeartbeat();
  Tick();
}

void Machine::CrashWorker() {
  if (!worker_up_) return;
  world_.Note(absl::StrCat("worker of ", node(), " crashes"));
  worker_up_ = false;
  ++worker_;
  BreakStream();
}

bool Machine::UpgradeWorker() {
  if (!std::exchange(is_old_, false)) return false;
  CrashWorker();
  StartWorker();
  return true;
}

void Machine::Leave() {
  if (!worker_up_ || leaving_) return;
  world_.Note(absl::StrCat("worker of ", node(), " is leaving"));
  leaving_ = true;
  SendLeaving();
  EndIfIdle();
  world_.scheduler.After(absl::Seconds(5), [this, worker = worker_] {
    if (worker != worker_) return;
    for (auto& [key, holding] : holdings_) {
      for (auto& [number, rank] : holding.ranks) {
        if (rank.stage != Stage::kEnded) End(holding, rank, StoppedByWorker(SIGTERM));
      }
    }
    EndIfIdle();
  });
}

void Machine::SendLeaving() {
  v1::WorkerMessage message;
  message.mutable_leaving();
  Send(message);
}

void Machine::EndIfIdle() {
  if (!leaving_ || HasLiveRanks()) return;
  // Messages sent last may still arrive.
  world_.scheduler.After(absl::Milliseconds(20), [this, worker = worker_] {
    if (worker == worker_) CrashWorker();
  });
}

bool Machine::HasLiveRanks() const {
  return std::any_of(holdings_.begin(), holdings_.end(), [this](const auto& held) {
    return HasLiveRanks(held.first.first, held.first.second);
  });
}

bool Machine::HasLiveRanks(const std::string& job, uint64_t generation) const {
  const auto holding = holdings_.find({job, generation});
  if (holding == holdings_.end()) return false;
  const auto& ranks = holding->second.ranks;
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const auto& rank) { return rank.second.stage != Stage::kEnded; });
}

void Machine::Crash(bool forget) {
  world_.Note(absl::StrCat("machine ", id(), " (", node(), ") crashes"));
  CrashWorker();
  off_ = true;
  ++boot_;
  for (auto& [key, holding] : holdings_) {
    for (auto& [number, rank] : holding.ranks) {
      if (rank.stage == Stage::kEnded) continue;
      rank.stage = Stage::kEnded;
      rank.report.set_phase(v1::EXITED);
      rank.report.mutable_exit()->set_signal(SIGKILL);
      world_.NotifyCheckers(&Checker::OnExited, rank.process);
      options_.on_death(rank.process);
    }
  }
  if (!forget) return;
  holdings_.clear();
  stored_promises_.Clear();
  stored_identity_.Clear();
  stored_seen_ = {};
}

void Machine::Retire() {
  Crash(/*forget=*/true);
  retired_ = true;
}

void Machine::WhenWorkerRuns(std::function<void()> action) {
  if (!IsWorkerPaused()) return action();
  world_.scheduler.At(worker_paused_until_, [this, worker = worker_, action = std::move(action)] {
    if (worker == worker_) WhenWorkerRuns(action);
  });
}

void Machine::PauseWorker(absl::Duration by) {
  world_.Note(absl::StrCat("worker of ", node(), " is stopped for ", absl::FormatDuration(by)));
  worker_paused_until_ = std::max(worker_paused_until_, world_.scheduler.now().steady + by);
}

bool Machine::PauseSomeRank(absl::Duration by) {
  const auto live = LiveRanks();
  if (live.empty()) return false;
  Rank& rank = *live[world_.random.Below(live.size())].second;
  world_.Note(absl::StrCat(Name(rank.process), " is stopped for ", absl::FormatDuration(by)));
  rank.paused_until = std::max(rank.paused_until, world_.scheduler.now().steady + by);
  return true;
}

bool Machine::PauseSomeShim(absl::Duration by) {
  const auto live = LiveRanks();
  if (live.empty()) return false;
  Rank& rank = *live[world_.random.Below(live.size())].second;
  world_.Note(
      absl::StrCat("shim of ", Name(rank.process), " is stopped for ", absl::FormatDuration(by)));
  rank.shim_paused_until = std::max(rank.shim_paused_until, world_.scheduler.now().steady + by);
  return true;
}

void Machine::PauseMachine(absl::Duration by) {
  PauseWorker(by);
  for (auto& [holding, rank] : LiveRanks()) {
    rank->paused_until = rank->shim_paused_until = worker_paused_until_;
  }
}

void Machine::BreakStream() {
  if (stream_ == nullptr) return;
  stream_->Break();
  stream_.reset();
  welcomed_ = false;
  if (worker_up_) Connect();
}

void Machine::OnLinksCut() {
  const bool up = !world_.IsOpen(id(), 0);
  const bool down = !world_.IsOpen(0, id());
  if (stream_ != nullptr && (up || down)) stream_->Cut(up, down);
}

void Machine::CutNetwork(absl::Duration how_long) {
  if (how_long > absl::ZeroDuration()) {
    world_.Note(absl::StrCat("machine ", id(), " (", node(), ") is cut off for ",
                             absl::FormatDuration(how_long)));
  }
  cut_until_ = world_.scheduler.now().steady + how_long;
  BreakStream();
}

}  // namespace muster::simulation
