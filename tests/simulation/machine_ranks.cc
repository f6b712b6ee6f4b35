// The ranks of a simulated machine.
#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/machine.h"

namespace muster::simulation {
namespace {

constexpr uint64_t kBarriers = 3;  // barriers that each rank passes
// Phases after the barriers.
constexpr const char* kPhases[kBarriers + 1] = {"training", "evaluating", "checkpointing",
                                                "training"};
// New steps of each generation: it repeats the others, of which it does one per barrier.
constexpr uint64_t kNewSteps = 2;
// The processes of a machine that continues do so in any order.
constexpr absl::Duration kResumption = absl::Milliseconds(100);

}  // namespace

void Machine::Later(const Key& key, uint32_t rank, absl::Duration least, absl::Duration most,
                    std::function<void(Holding&, Rank&)> step) {
  world_.scheduler.After(world_.random.Between(least, most),
                         [this, key, rank, step = std::move(step), boot = boot_] {
                           if (boot != boot_) return;
                           const auto holding = holdings_.find(key);
                           if (holding == holdings_.end()) return;
                           // A coordinator on another store may have launched other ranks under
                           // the same number.
                           const auto which = holding->second.ranks.find(rank);
                           if (which == holding->second.ranks.end()) return;
                           if (which->second.stage == Stage::kEnded) return;
                           step(holding->second, which->second);
                         });
}

void Machine::Act(const Holding& holding, const Rank& rank, absl::Duration least,
                  absl::Duration most, std::function<void(Holding&, Rank&)> step) {
  Later(KeyOf(holding), rank.report.rank(), least, most,
        [this, step = std::move(step)](Holding& of, Rank& acting) {
          if (acting.stage == Stage::kGone) return;
          const absl::Duration stopped = acting.paused_until - world_.scheduler.now().steady;
          if (stopped <= absl::ZeroDuration()) return step(of, acting);
          Act(of, acting, stopped, stopped + kResumption, step);
        });
}

std::vector<std::pair<Machine::Holding*, Machine::Rank*>> Machine::LiveRanks() {
  std::vector<std::pair<Holding*, Rank*>> live;
  for (auto& [key, holding] : holdings_) {
    for (auto& [number, rank] : holding.ranks) {
      if (rank.stage != Stage::kGone && rank.stage != Stage::kEnded) {
        live.emplace_back(&holding, &rank);
      }
    }
  }
  return live;
}

void Machine::Start(Holding& holding, Rank& rank) {
  rank.stage = Stage::kRunning;
  rank.report.set_phase(v1::STARTED);
  rank.report.set_pid(static_cast<int64_t>(1000 + rank.report.rank()));
  if (holding.launch.spec().command().empty()) {
    rank.report.mutable_progress()->set_phase("loading-data");
  }
  SendReport(holding, rank);
  const auto flawed = holding.launch.spec().env().find("FAILS");
  if (flawed != holding.launch.spec().env().end() &&
      flawed->second == absl::StrCat(rank.report.rank())) {
    Act(holding, rank, absl::Milliseconds(10), absl::Seconds(1),
        [this](Holding& of, Rank& failing) {
          v1::ExitInfo exit;
          exit.set_exit_code(7);
          End(of, failing, exit);
        });
    return;  // before it completes a step, which would give back its restarts
  }
  const bool joins =
      holding.launch.spec().command().empty() || holding.launch.spec().env().count("JOINS") != 0;
  if (joins) {
    Act(holding, rank, absl::Milliseconds(10), absl::Milliseconds(500),
        [this](Holding& of, Rank& joining) { Join(of, joining); });
  } else {
    const absl::Duration longest = world_.long_commands ? absl::Seconds(60) : absl::Seconds(10);
    Act(holding, rank, absl::Milliseconds(100), longest,
        [this](Holding& of, Rank& ending) { End(of, ending, {}); });
  }
}

void Machine::Join(Holding& holding, Rank& rank) {
  rank.report.set_phase(v1::JOINED);
  rank.report.mutable_progress()->set_phase("connecting");
  v1::JoinInfo& join = *rank.report.mutable_join();
  join.set_layout_digest(world_.random.Chance(0.9) ? "avx512" : "avx2");
  join.set_has_checkpoint(world_.random.Chance(0.5));
  join.set_checkpoint_step(join.has_checkpoint() ? world_.random.Below(3) : 0);
  rank.stage = Stage::kWaitsForWorld;
  SendReport(holding, rank);
  if (holding.world.has_value()) OnWorld(*holding.world);
}

void Machine::FetchUniqueId(Holding& holding, Rank& rank) {
  rank.stage = Stage::kWaitsForKey;
  if (rank.report.rank() == 0) {
    holding.put = absl::StrCat(holding.launch.job_id(), "/", holding.launch.generation(), "/",
                               rank.process.instance, "/", world_.random.Next());
  }
  SendCalls(KeyOf(holding), holding);
}

void Machine::SetConnected(Holding& holding, Rank& rank) {
  if (holding.launch.spec().command().empty()) {
    rank.report.set_phase(v1::CONNECTED);
    SendReport(holding, rank);
  }
  Work(holding, rank);
}

void Machine::Work(Holding& holding, Rank& rank) {
  if (SavesCheckpoints(holding, rank)) {
    if (rank.barrier == 0) ContinueFromCheckpoint(rank);
    SaveCheckpoint(holding, rank);
  }
  v1::Progress& progress = *rank.report.mutable_progress();
  progress.set_step(kNewSteps * holding.launch.generation() + rank.barrier);
  progress.set_phase(kPhases[std::min(rank.barrier, kBarriers)]);
  progress.set_checkpoint_stall_seconds(0.1 * rank.barrier);
  rank.report.set_memory_bytes((rank.barrier + 1) << 20);
  const bool last = rank.barrier == kBarriers;
  Act(holding, rank, absl::Milliseconds(50), absl::Seconds(3),
      [this, last](Holding& of, Rank& working) {
        if (!last) {
          Arrive(of, working);
          return;
        }
        if (working.report.rank() == 0) working.report.mutable_summary()->set_steps(10);
        End(of, working, {});
      });
}

void Machine::Arrive(Holding& holding, Rank& rank) {
  rank.stage = Stage::kWaitsAtBarrier;
  ++rank.barrier;
  world_.NotifyCheckers(&Checker::OnArrived, rank.process, rank.barrier);
  SendArrivals(KeyOf(holding), holding, rank.barrier);
}

void Machine::End(Holding& holding, Rank& rank, v1::ExitInfo exit) {
  // The shim reports how the rank ended by itself.
  const bool by_shim = exit.stopped_by_worker() || exit.lease_expired();
  if (by_shim && rank.stage == Stage::kGone) return;
  if (rank.shim_paused_until > world_.scheduler.now().steady) {
    return EndWhenShimContinues(holding, rank, std::move(exit));
  }
  const bool died = rank.stage != Stage::kGone && !exit.stopped_by_worker() &&
                    (exit.exit_code() != 0 || exit.signal() != 0);
  world_.Note(absl::StrCat(Name(rank.process), died ? " dies" : " ends"));
  rank.stage = Stage::kEnded;
  rank.report.set_phase(v1::EXITED);
  *rank.report.mutable_exit() = std::move(exit);
  if (rank.report.has_failure()) {
    *rank.report.mutable_exit()->mutable_failure() = rank.report.failure();
  }
  world_.NotifyCheckers(&Checker::OnExited, rank.process);
  SendReport(holding, rank);
  EndIfIdle();
  if (died) options_.on_death(rank.process);
}

void Machine::EndWhenShimContinues(Holding& holding, Rank& rank, v1::ExitInfo exit) {
  if (exit.stopped_by_worker() || exit.lease_expired()) {
    world_.NotifyCheckers(&Checker::OnUnfenced, rank.process);
  } else {
    world_.Note(absl::StrCat(Name(rank.process), " ends unnoticed"));
    rank.stage = Stage::kGone;
    world_.NotifyCheckers(&Checker::OnExited, rank.process);
    if (exit.exit_code() != 0 || exit.signal() != 0) options_.on_death(rank.process);
  }
  const absl::Duration stopped = rank.shim_paused_until - world_.scheduler.now().steady;
  Later(KeyOf(holding), rank.report.rank(), stopped, stopped + kResumption,
        [this, exit = std::move(exit)](Holding& of, Rank& ending) {
          if (exit.lease_expired() && of.deadline > world_.scheduler.now().steady) return;
          End(of, ending, exit);
        });
}

v1::ExitInfo Machine::StoppedByWorker(int signal) {
  v1::ExitInfo exit;
  exit.set_signal(signal);
  exit.set_stopped_by_worker(true);
  return exit;
}

// The rank ends much later than it should. Its worker usually reports that it cannot be killed.
void Machine::OutliveKill(const Key& key, Rank& rank) {
  rank.unkillable = true;
  world_.CountFault("unkillable ranks");
  world_.NotifyCheckers(&Checker::OnUnfenced, rank.process);
  if (world_.random.Chance(0.7)) {
    Later(key, rank.report.rank(), absl::Seconds(10), absl::Seconds(20),
          [this](Holding& of, Rank& unkillable) {
            if (is_old_) return;
            unkillable.report.set_unkillable(true);
            SendReport(of, unkillable);
          });
  }
  Later(key, rank.report.rank(), absl::Seconds(20), absl::Seconds(150),
        [this](Holding& of, Rank& ending) { End(of, ending, StoppedByWorker(SIGKILL)); });
}

bool Machine::FailSomeRank() {
  auto live = LiveRanks();
  if (live.empty()) return false;
  auto& [holding, rank] = live[world_.random.Below(live.size())];
  v1::ExitInfo exit;
  if (world_.random.Chance(0.5)) {
    exit.set_signal(world_.random.Chance(0.5) ? SIGKILL : SIGSEGV);
  } else {
    exit.set_exit_code(static_cast<int>(1 + world_.random.Below(3)));
  }
  if (rank->stage != Stage::kLaunched && world_.random.Chance(0.3)) {
    rank->report.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kInternal));
    rank->report.mutable_failure()->set_message("simulated failure");
    SendReport(*holding, *rank);
  }
  End(*holding, *rank, exit);
  return true;
}

void Machine::PeerDied(const Process& peer) {
  const auto entry = holdings_.find({peer.job, peer.generation});
  if (entry == holdings_.end()) return;
  for (auto& [number, rank] : entry->second.ranks) {
    const bool connected = rank.stage == Stage::kWaitsAtBarrier || rank.barrier > 0;
    const bool other = rank.process.whole() != peer.whole();
    if (other || number == peer.rank || !connected || world_.random.Chance(0.2)) continue;
    Act(entry->second, rank, absl::Milliseconds(1), absl::Milliseconds(300),
        [this, peer](Holding& of, Rank& bereaved) {
          bereaved.report.mutable_failure()->set_code(
              static_cast<int>(absl::StatusCode::kUnavailable));
          bereaved.report.mutable_failure()->set_peer_rank(peer.rank);
          SendReport(of, bereaved);
          Act(of, bereaved, absl::Milliseconds(1), absl::Seconds(4),
              [this](Holding& holding, Rank& giving_up) {
                v1::ExitInfo exit;
                exit.set_exit_code(1);
                End(holding, giving_up, exit);
              });
        });
  }
}

}  // namespace muster::simulation
