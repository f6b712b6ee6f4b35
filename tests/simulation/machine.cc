#include "tests/simulation/machine.h"

#include <csignal>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "common/version.h"

namespace muster::simulation {
namespace {

constexpr char kUniqueId[] = "unique-id/WORLD/0";
constexpr uint64_t kBarriers = 3;  // barriers that each rank passes

std::string Brief(const v1::CoordinatorMessage& message) {
  v1::CoordinatorMessage brief = message;
  if (brief.has_launch()) brief.mutable_launch()->clear_spec();
  return brief.ShortDebugString();
}

v1::ExitInfo StoppedByWorker(int signal = SIGTERM) {
  v1::ExitInfo exit;
  exit.set_signal(signal);
  exit.set_stopped_by_worker(true);
  return exit;
}

}  // namespace

Machine::Machine(World& world, Coordinator& coordinator, Options options)
    : world_(world), coordinator_(coordinator), options_(std::move(options)) {}

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

// ----------------------------------------------------------------------------------------------------------
// worker

void Machine::StartWorker() {
  if (worker_up_ || retired_) return;
  worker_up_ = true;
  leaving_ = false;
  ++worker_;
  incarnation_ = (options_.id << 32) + worker_;
  world_.Note(absl::StrCat("worker of ", node(), " starts on machine ", id()));
  for (auto& [key, holding] : holdings_) holding.world.reset();
  Connect();
  SendHeartbeat();
}

void Machine::CrashWorker() {
  if (!worker_up_) return;
  world_.Note(absl::StrCat("worker of ", node(), " crashes"));
  worker_up_ = false;
  ++worker_;
  BreakStream();
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
        if (rank.stage != Stage::kEnded) End(holding, rank, StoppedByWorker());
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
  for (const auto& [key, holding] : holdings_) {
    for (const auto& [number, rank] : holding.ranks) {
      if (rank.stage != Stage::kEnded) return true;
    }
  }
  return false;
}

void Machine::Crash(bool forget) {
  world_.Note(absl::StrCat("machine ", id(), " (", node(), ") crashes"));
  CrashWorker();
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
  if (forget) holdings_.clear();
}

void Machine::Retire() {
  Crash(/*forget=*/true);
  retired_ = true;
}

void Machine::BreakStream() {
  if (stream_ == nullptr) return;
  stream_->Break();
  stream_.reset();
  welcomed_ = false;
  if (worker_up_) Connect();
}

void Machine::CutNetwork(absl::Duration how_long) {
  cut_until_ = world_.scheduler.now().steady + how_long;
  BreakStream();
}

void Machine::Connect() {
  const absl::Duration pause =
      world_.random.Between(absl::Milliseconds(10), absl::Seconds(refused_ ? 3 : 1));
  world_.scheduler.After(pause, [this, worker = worker_] {
    if (worker != worker_ || stream_ != nullptr || retired_) return;
    if (cut_until_ > world_.scheduler.now().steady || !coordinator_.up()) {
      Connect();
      return;
    }
    const auto stream = std::make_shared<Stream>(world_, incarnation_);
    stream_ = stream;
    stream->worker_end = [this, stream = stream.get()] {
      if (stream_.get() == stream) BreakStream();
    };
    stream->ToCoordinator([this, stream, hello = MakeHello()] {
      coordinator_.Open(
          stream, hello,
          [this, stream](const v1::CoordinatorMessage& message) {
            if (stream_ == stream) Receive(message);
          },
          [this, stream](const absl::Status& status) {
            if (stream_ != stream) return;
            refused_ = absl::IsAlreadyExists(status);
            BreakStream();
          });
    });
    world_.Note(absl::StrCat("machine ", id(), " (", node(), ") sends Hello with ",
                             holdings_.size(), " generations"));
    if (leaving_) SendLeaving();
    ReportAgain();
  });
}

v1::Hello Machine::MakeHello() const {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node_name(node());
  hello.set_incarnation(incarnation_);
  for (uint32_t i = 0; i < options_.slots; ++i) {
    hello.add_slots()->set_index(i);
    hello.mutable_slots(static_cast<int>(i))->set_kind("cpu");
  }
  for (const auto& [key, holding] : holdings_) {
    v1::GenerationReport& report = *hello.add_inventory();
    report.set_job_id(key.first);
    report.set_generation(key.second);
    for (const auto& [number, rank] : holding.ranks) *report.add_ranks() = rank.report;
    if (holding.passed == 0) continue;
    report.add_passed_barriers()->set_group("world");
    report.mutable_passed_barriers(0)->set_sequence(holding.passed);
  }
  return hello;
}

void Machine::ReportAgain() {
  for (const auto& [key, holding] : holdings_) {
    std::set<uint64_t> barriers;
    bool wants_key = false;
    for (const auto& [number, rank] : holding.ranks) {
      wants_key |= rank.stage == Stage::kWaitsForKey;
      if (rank.stage == Stage::kWaitsAtBarrier) barriers.insert(rank.barrier);
    }
    if (!holding.put.empty()) {
      v1::WorkerMessage message;
      message.mutable_put_key()->set_job_id(key.first);
      message.mutable_put_key()->set_generation(key.second);
      message.mutable_put_key()->set_key(kUniqueId);
      message.mutable_put_key()->set_value(holding.put);
      Send(message);
    }
    if (wants_key) {
      v1::WorkerMessage message;
      message.mutable_get_key()->set_job_id(key.first);
      message.mutable_get_key()->set_generation(key.second);
      message.mutable_get_key()->set_key(kUniqueId);
      Send(message);
    }
    for (const uint64_t sequence : barriers) SendArrivals(key, holding, sequence);
  }
}

void Machine::Send(const v1::WorkerMessage& message) {
  if (!worker_up_ || stream_ == nullptr) return;
  stream_->ToCoordinator(
      [this, stream = stream_, message] { coordinator_.Receive(stream, message); });
}

void Machine::SendHeartbeat() {
  world_.scheduler.After(absl::Seconds(1), [this, worker = worker_] {
    if (worker != worker_ || !worker_up_) return;
    v1::WorkerMessage message;
    message.mutable_heartbeat();
    for (const auto& [key, holding] : holdings_) {
      v1::GenerationReport& report = *message.mutable_heartbeat()->add_progress();
      report.set_job_id(key.first);
      report.set_generation(key.second);
      for (const auto& [number, rank] : holding.ranks) {
        if (!rank.report.has_progress()) continue;
        report.add_ranks()->set_rank(number);
        *report.mutable_ranks(report.ranks_size() - 1)->mutable_progress() = rank.report.progress();
      }
    }
    Send(message);
    SendHeartbeat();
  });
}

void Machine::SendReport(const Holding& holding, const Rank& rank) {
  v1::WorkerMessage message;
  message.mutable_report()->set_job_id(holding.launch.job_id());
  message.mutable_report()->set_generation(holding.launch.generation());
  *message.mutable_report()->add_ranks() = rank.report;
  Send(message);
}

void Machine::SendArrivals(const Key& key, const Holding& holding, uint64_t sequence) {
  v1::WorkerMessage message;
  v1::ArriveBarrier& arrive = *message.mutable_arrive_barrier();
  arrive.set_job_id(key.first);
  arrive.set_generation(key.second);
  arrive.mutable_barrier()->set_group("world");
  arrive.mutable_barrier()->set_sequence(sequence);
  for (const auto& [number, rank] : holding.ranks) {
    if (rank.stage == Stage::kWaitsAtBarrier && rank.barrier == sequence) arrive.add_ranks(number);
  }
  Send(message);
}

// ----------------------------------------------------------------------------------------------
// messages from the coordinator

void Machine::Receive(const v1::CoordinatorMessage& message) {
  if (!worker_up_) return;
  if (!message.has_heartbeat_ack()) {
    world_.Note(absl::StrCat("machine ", id(), " (", node(), ") receives ", Brief(message)));
  }
  switch (message.kind_case()) {
    case v1::CoordinatorMessage::kWelcome:
      welcomed_ = true;
      refused_ = false;
      break;
    case v1::CoordinatorMessage::kLaunch:
      OnLaunch(message.launch());
      break;
    case v1::CoordinatorMessage::kWorld:
      OnWorld(message.world());
      break;
    case v1::CoordinatorMessage::kStop:
      OnStop(message.stop());
      break;
    case v1::CoordinatorMessage::kKeyValue:
      OnKeyValue(message.key_value());
      break;
    case v1::CoordinatorMessage::kReleaseBarrier:
      OnReleaseBarrier(message.release_barrier());
      break;
    case v1::CoordinatorMessage::kForget:
      OnForget(message.forget());
      break;
    case v1::CoordinatorMessage::kWaitNotice:
      ++world_.wait_notices;
      break;
    default:
      break;
  }
}

void Machine::OnLaunch(const v1::Launch& launch) {
  const Key key(launch.job_id(), launch.generation());
  if (holdings_.count(key) != 0) return;
  for (auto& [other, holding] : holdings_) {
    if (other.first != key.first) continue;
    if (other.second > key.second) {
      world_.violations.Add(absl::StrCat("an older generation of ", key.first, " was launched"));
    }
    for (auto& [number, rank] : holding.ranks) {
      if (rank.stage != Stage::kEnded) End(holding, rank, StoppedByWorker(SIGKILL));
    }
  }
  Holding& holding = holdings_[key];
  holding.launch = launch;
  for (const v1::RankPlacement& placement : launch.ranks()) {
    Rank& rank = holding.ranks[placement.rank()];
    rank.process = {options_.id,
                    key.first,
                    key.second,
                    placement.rank(),
                    {placement.slots().begin(), placement.slots().end()}};
    rank.report.set_rank(placement.rank());
    rank.report.set_phase(v1::PLACED);
    if (leaving_) {
      // The worker starts no ranks any more.
      rank.stage = Stage::kEnded;
      rank.report.set_phase(v1::EXITED);
      *rank.report.mutable_exit() = StoppedByWorker();
      SendReport(holding, rank);
      continue;
    }
    world_.NotifyCheckers(&Checker::OnStarted, rank.process);
    Later(key, placement.rank(), absl::Milliseconds(1), absl::Milliseconds(50),
          [this](Holding& of, Rank& started) { Start(of, started); });
  }
}

void Machine::OnWorld(const v1::World& world) {
  const auto entry = holdings_.find({world.job_id(), world.generation()});
  if (entry == holdings_.end()) return;
  entry->second.world = world;
  for (auto& [number, rank] : entry->second.ranks) {
    if (rank.stage != Stage::kWaitsForWorld) continue;
    rank.stage = Stage::kRunning;
    Later(entry->first, number, absl::Milliseconds(1), absl::Milliseconds(100),
          [this](Holding& of, Rank& waited) { FetchUniqueId(of, waited); });
  }
}

void Machine::OnStop(const v1::StopGeneration& stop) {
  const auto entry = holdings_.find({stop.job_id(), stop.generation()});
  if (entry == holdings_.end()) return;
  for (auto& [number, rank] : entry->second.ranks) {
    Later(entry->first, number, absl::Milliseconds(10), absl::Seconds(2),
          [this, worker = worker_](Holding& of, Rank& stopped) {
            // Some ranks survive SIGTERM when the worker that would send SIGKILL is gone.
            if (worker != worker_ && world_.random.Chance(0.5)) return;
            End(of, stopped, StoppedByWorker());
          });
  }
}

void Machine::OnKeyValue(const v1::KeyValue& value) {
  const auto entry = holdings_.find({value.job_id(), value.generation()});
  if (entry == holdings_.end() || value.code() != 0) return;
  for (auto& [number, rank] : entry->second.ranks) {
    if (rank.stage != Stage::kWaitsForKey) continue;
    rank.stage = Stage::kRunning;
    world_.NotifyCheckers(&Checker::OnKey, rank.process, value.value());
    Later(entry->first, number, absl::Milliseconds(1), absl::Milliseconds(200),
          [this](Holding& of, Rank& waited) { SetConnected(of, waited); });
  }
}

void Machine::OnReleaseBarrier(const v1::ReleaseBarrier& release) {
  const auto entry = holdings_.find({release.job_id(), release.generation()});
  if (entry == holdings_.end()) return;
  Holding& holding = entry->second;
  if (release.code() != 0) {
    if (!world_.forgetful && absl::StrContains(release.message(), "ended without arriving")) {
      world_.violations.Add(release.message());
    }
    for (auto& [number, rank] : holding.ranks) {
      if (rank.stage != Stage::kWaitsAtBarrier) continue;
      if (rank.barrier != release.barrier().sequence()) continue;
      rank.stage = Stage::kRunning;
      rank.report.mutable_failure()->set_code(release.code());
      rank.report.mutable_failure()->set_message(release.message());
      SendReport(holding, rank);
      Later(entry->first, number, absl::Milliseconds(1), absl::Seconds(1),
            [this](Holding& of, Rank& aborted) {
              v1::ExitInfo exit;
              exit.set_exit_code(1);
              End(of, aborted, exit);
            });
    }
    return;
  }
  holding.passed = std::max(holding.passed, release.barrier().sequence());
  for (auto& [number, rank] : holding.ranks) {
    if (rank.stage != Stage::kWaitsAtBarrier) continue;
    if (rank.barrier > release.barrier().sequence()) continue;
    rank.stage = Stage::kRunning;
    world_.NotifyCheckers(&Checker::OnReleased, rank.process, rank.barrier,
                          holding.launch.world_size());
    Work(holding, rank);
  }
}

void Machine::OnForget(const v1::ForgetGeneration& forget) {
  const auto entry = holdings_.find({forget.job_id(), forget.generation()});
  if (entry == holdings_.end()) return;
  for (const auto& [number, rank] : entry->second.ranks) {
    if (rank.stage != Stage::kEnded) {
      world_.violations.Add(absl::StrCat(forget.job_id(), " generation ", forget.generation(),
                                         " was forgotten while rank ", number, " still runs"));
    }
  }
  holdings_.erase(entry);
}

// -----------------------------------------------------------------------------------------------------------
// ranks

void Machine::Later(const Key& key, uint32_t rank, absl::Duration least, absl::Duration most,
                    std::function<void(Holding&, Rank&)> step) {
  world_.scheduler.After(world_.random.Between(least, most),
                         [this, key, rank, step = std::move(step), boot = boot_] {
                           if (boot != boot_) return;
                           const auto holding = holdings_.find(key);
                           if (holding == holdings_.end()) return;
                           Rank& which = holding->second.ranks.at(rank);
                           if (which.stage != Stage::kEnded) step(holding->second, which);
                         });
}

void Machine::Start(Holding& holding, Rank& rank) {
  rank.stage = Stage::kRunning;
  rank.report.set_phase(v1::STARTED);
  rank.report.set_pid(static_cast<int64_t>(1000 + rank.report.rank()));
  SendReport(holding, rank);
  const auto flawed = holding.launch.spec().env().find("FAILS");
  if (flawed != holding.launch.spec().env().end() &&
      flawed->second == absl::StrCat(rank.report.rank())) {
    Later(KeyOf(holding), rank.report.rank(), absl::Milliseconds(10), absl::Seconds(1),
          [this](Holding& of, Rank& failing) {
            v1::ExitInfo exit;
            exit.set_exit_code(7);
            End(of, failing, exit);
          });
  }
  const bool joins =
      holding.launch.spec().command().empty() || holding.launch.spec().env().count("JOINS") != 0;
  if (joins) {
    Later(KeyOf(holding), rank.report.rank(), absl::Milliseconds(10), absl::Milliseconds(500),
          [this](Holding& of, Rank& joining) { Join(of, joining); });
  } else {
    Later(KeyOf(holding), rank.report.rank(), absl::Milliseconds(100), absl::Seconds(10),
          [this](Holding& of, Rank& ending) { End(of, ending, {}); });
  }
}

void Machine::Join(Holding& holding, Rank& rank) {
  rank.report.set_phase(v1::JOINED);
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
                               world_.random.Next());
  }
  ReportAgain();
}

void Machine::SetConnected(Holding& holding, Rank& rank) {
  if (holding.launch.spec().command().empty()) {
    rank.report.set_phase(v1::CONNECTED);
    SendReport(holding, rank);
  }
  Work(holding, rank);
}

void Machine::Work(Holding& holding, Rank& rank) {
  rank.report.mutable_progress()->set_step(10 * holding.launch.generation() + rank.barrier);
  const bool last = rank.barrier == kBarriers;
  Later(KeyOf(holding), rank.report.rank(), absl::Milliseconds(50), absl::Seconds(3),
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
  const bool died = !exit.stopped_by_worker() && (exit.exit_code() != 0 || exit.signal() != 0);
  world_.Note(absl::StrCat(KeyOf(holding).first, " generation ", KeyOf(holding).second, " rank ",
                           rank.report.rank(), died ? " dies" : " ends"));
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

bool Machine::FailSomeRank() {
  std::vector<std::pair<Holding*, Rank*>> live;
  for (auto& [key, holding] : holdings_) {
    for (auto& [number, rank] : holding.ranks) {
      if (rank.stage != Stage::kEnded) live.emplace_back(&holding, &rank);
    }
  }
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
    if (number == peer.rank || !connected || world_.random.Chance(0.2)) continue;
    Later(entry->first, number, absl::Milliseconds(1), absl::Milliseconds(300),
          [this, peer](Holding& of, Rank& bereaved) {
            bereaved.report.mutable_failure()->set_code(
                static_cast<int>(absl::StatusCode::kUnavailable));
            bereaved.report.mutable_failure()->set_peer_rank(peer.rank);
            SendReport(of, bereaved);
            Later(KeyOf(of), bereaved.report.rank(), absl::Milliseconds(1), absl::Seconds(4),
                  [this](Holding& holding, Rank& giving_up) {
                    v1::ExitInfo exit;
                    exit.set_exit_code(1);
                    End(holding, giving_up, exit);
                  });
          });
  }
}

}  // namespace muster::simulation
