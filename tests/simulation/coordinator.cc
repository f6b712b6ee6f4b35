#include "tests/simulation/coordinator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/batches.h"
#include "coordinator/core/records.h"
#include "coordinator/service/checks/quarantine.h"
#include "coordinator/service/checks/validate.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::simulation {
namespace {

// Comparisons take time: they repeat all steps since the process started.
constexpr int kComparisons = 3;
constexpr double kComparedShare = 0.1;
constexpr char kAddress[] = "10.0.0.1";

// Returns an incarnation that looks random, as those of real processes do.
Incarnation IncarnationOf(uint64_t process) { return Incarnation(process * 0x9e3779b97f4a7c15); }

}  // namespace

Coordinator::Coordinator(World& world) : world_(world) {
  if (world_.garbles_reports) comparisons_left_ = kComparisons;
}

void Coordinator::Start() {
  if (up()) return;
  core::Options options;
  options.incarnation = IncarnationOf(++process_);
  found_[process_] = disk_.committers;
  options.job_lease = world_.job_lease;
  options.new_cluster_id = absl::StrCat("cluster-", process_);
  options.awaits_listening = true;
  options.boot_id = "boot";
  auto core = std::make_unique<core::Core>(options);
  std::vector<store::Record> records;
  for (const auto& [key, value] : disk_.records) records.push_back({key, value});
  absl::StatusOr<core::Effects> loaded = core->Load(records, world_.scheduler.now());
  if (!loaded.ok()) {
    world_.violations.Add(absl::StrCat("recovery failed: ", loaded.status().ToString()));
    return;
  }
  core_ = std::move(core);
  if (comparisons_left_ > 0) {
    history_ = std::make_unique<CoreHistory>(options, std::move(records), world_.scheduler.now());
  }
  paused_until_ = SteadyTime();
  armed_ = SteadyTime::Infinite();
  world_.Note("coordinator starts");
  world_.NotifyCheckers(&Checker::OnRecovered, *core_, world_.scheduler.now());
  Commit(*loaded);
  ArmTick();
  powered_off_.erase(address_);
  world_.scheduler.After(world_.random.Between(absl::ZeroDuration(), absl::Seconds(2)),
                         [this, process = process_] {
                           if (process == process_ && up()) Listen();
                         });
}

void Coordinator::Listen() {
  listening_ = true;
  const std::string address = absl::StrCat("coordinator-", address_);
  Handle(core::Listening{address, address});
}

bool Coordinator::Refuses(uint64_t address) const {
  if (powered_off_.count(address) != 0) return false;
  return address != address_ || !listening_;
}

void Coordinator::Stop() {
  if (!up() || !listening_ || closing_) return;
  world_.Note("coordinator closes");
  closing_ = true;
  Handle(core::Closing{});
  AwaitClosing();
}

void Coordinator::AwaitClosing() {
  world_.scheduler.After(absl::Milliseconds(5), [this, process = process_] {
    if (process != process_) return;
    if (paused_until_ > world_.scheduler.now().steady || !turns_.empty()) return AwaitClosing();
    listening_ = false;
    world_.scheduler.After(world_.random.Between(absl::ZeroDuration(), absl::Seconds(2)),
                           [this, process] {
                             if (process == process_) Crash();
                           });
  });
}

void Coordinator::Crash() {
  if (!up()) return;
  world_.Note("coordinator crashes");
  listening_ = closing_ = false;
  // Commits are in order, so a prefix of them reached the disk.
  const size_t durable = world_.random.Below(turns_.size() + 1);
  for (size_t i = 0; i < turns_.size(); ++i) {
    if (i < durable && !turns_[i].committed) Commit(turns_[i].effects);
  }
  turns_.clear();
  ++process_;
  core_.reset();
  history_.reset();
  requests_.clear();
  for (auto& [id, session] : std::exchange(sessions_, {})) {
    session.stream->coordinator_end = nullptr;
    session.stream->Break();
  }
}

uint64_t Coordinator::CopyStore() {
  const uint64_t copy = copies_.size() + 1;
  copies_[copy] = disk_;
  world_.NotifyCheckers(&Checker::OnStoreCopied, copy);
  return copy;
}

void Coordinator::ReplaceStore(uint64_t copy) {
  disk_ = copy == 0 ? Disk() : copies_.at(copy);
  accepted_.clear();
  world_.NotifyCheckers(&Checker::OnStoreReplaced, copy);
}

bool Coordinator::HadCommit(uint64_t process, const SeenCommit& commit) const {
  if (commit.process == process) return true;
  const std::vector<uint64_t>& found = found_.at(process);
  return commit.index <= found.size() && found[commit.index - 1] == commit.process;
}

void Coordinator::Open(const std::shared_ptr<Stream>& stream, v1::Hello hello,
                       std::optional<v1::Hello> used,
                       std::function<void(const v1::CoordinatorMessage&)> deliver,
                       std::function<void(const absl::Status&)> closed) {
  if (!up() || !listening_) {
    stream->Break();
    return;
  }
  const SessionId id(next_session_++);
  stream->session = id;
  stream->coordinator = process_;
  stream->coordinator_end = [this, id, process = process_] {
    if (process == process_ && sessions_.erase(id) != 0) Handle(core::SessionClosed{id});
  };
  sessions_[id] = {stream, std::move(deliver), std::move(closed), world_.scheduler.now().steady};
  workers_[id] = {hello.node_name(), hello.incarnation()};
  const absl::Status valid = service::ValidateHello(hello);
  if (!valid.ok()) world_.violations.Add(absl::StrCat("a Hello was refused: ", valid.ToString()));
  Corrections corrections = service::Quarantine(hello);
  if (!corrections.empty()) world_.CountFault("quarantined Hellos");
  std::optional<core::Event> same;
  if (used.has_value()) same = core::SessionOpened{id, *std::move(used), kAddress};
  Handle(core::SessionOpened{id, std::move(hello), kAddress, std::move(corrections)},
         std::move(same));
}

void Coordinator::Receive(const std::shared_ptr<Stream>& stream, v1::WorkerMessage message,
                          std::optional<v1::WorkerMessage> used) {
  const auto session = sessions_.find(stream->session);
  if (!up() || session == sessions_.end()) return;
  session->second.heard = world_.scheduler.now().steady;
  service::Quarantined quarantined = service::Quarantine(message);
  if (!quarantined.corrections.empty()) world_.CountFault("quarantined messages");
  if (quarantined.refusal.has_value()) {
    stream->ToWorker(
        [deliver = session->second.deliver, refusal = *quarantined.refusal] { deliver(refusal); });
  }
  std::optional<core::Event> same;
  if (used.has_value()) same = core::SessionMessage{stream->session, *std::move(used)};
  Handle(
      core::SessionMessage{stream->session, std::move(message), std::move(quarantined.corrections)},
      std::move(same));
}

void Coordinator::Request(core::Event event, std::function<void(const core::Reply&)> done) {
  if (!up()) return;
  std::visit(
      [&](const auto& request) {
        if constexpr (requires { request.request; }) requests_[request.request] = std::move(done);
      },
      event);
  Handle(std::move(event));
}

void Coordinator::Handle(core::Event event, std::optional<core::Event> same) {
  // A paused process handles its events when it continues.
  if (paused_until_ > world_.scheduler.now().steady) {
    world_.scheduler.At(paused_until_, [this, event = std::move(event), same = std::move(same),
                                        process = process_] {
      if (process == process_ && up()) Step(event, same);
    });
    return;
  }
  Step(event, same);
}

bool Coordinator::IsStale(const core::Event& event) const {
  const auto* message = std::get_if<core::SessionMessage>(&event);
  if (message == nullptr) return false;
  const auto& [node, incarnation] = workers_.at(message->session);
  const auto accepted = accepted_.find(node);
  return accepted != accepted_.end() && accepted->second != incarnation;
}

core::Effects Coordinator::StepAndCompare(const core::Event& event,
                                          const std::optional<core::Event>& same, bool more) {
  const Time now = world_.scheduler.now();
  std::unique_ptr<core::Core> twin;
  if (same.has_value() && history_ != nullptr && world_.random.Chance(kComparedShare)) {
    twin = history_->Replay();
  }
  core::Effects effects = core_->Step(event, now, more);
  if (history_ != nullptr) history_->Add(event, now, more);
  if (twin == nullptr) return effects;
  world_.CountFault("compared garbage");
  const std::string difference =
      FindDifference(*core_, effects, *twin, twin->Step(*same, now, more), now);
  if (!difference.empty()) {
    world_.violations.Add(
        absl::StrCat("something out of bounds in a message changed something else: ", difference));
  }
  if (--comparisons_left_ == 0) history_.reset();
  return effects;
}

void Coordinator::Step(const core::Event& event, const std::optional<core::Event>& same) {
  // Every fourth turn has a second event, which changes nothing.
  const bool more = !std::holds_alternative<core::Tick>(event) && ++steps_ % 4 == 0;
  core::Effects effects = StepAndCompare(event, same, more);
  world_.NotifyCheckers(&Checker::OnStep, *core_, event, effects, IsStale(event));
  CheckSilence(effects);
  for (const core::Send& send : effects.sends) {
    if (send.message.has_welcome()) {
      const auto& [node, incarnation] = workers_.at(send.session);
      accepted_[node] = incarnation;
    }
  }
  for (const std::string& line : effects.logs) world_.Note(absl::StrCat("coordinator: ", line));
  Turn turn;
  turn.committed = effects.writes.empty();
  turn.effects = std::move(effects);
  turns_.push_back(std::move(turn));
  if (!turns_.back().committed) {
    last_commit_ = std::max(last_commit_, world_.scheduler.now().steady) +
                   world_.random.Between(absl::Microseconds(100), absl::Milliseconds(10));
    const uint64_t number = first_turn_ + turns_.size() - 1;
    world_.scheduler.At(last_commit_, [this, number, process = process_] {
      if (process != process_) return;
      Turn& turn = turns_[number - first_turn_];
      Commit(turn.effects);
      turn.committed = true;
      ReleaseCommitted();
    });
  }
  ReleaseCommitted();
  if (more) return Step(core::SessionClosed{SessionId(0)});
  ArmTick();
}

void Coordinator::CheckSilence(const core::Effects& effects) {
  for (const core::CloseSession& close : effects.closes) {
    const auto session = sessions_.find(close.session);
    if (session == sessions_.end() || !absl::StrContains(close.status.message(), "no heartbeat")) {
      continue;
    }
    const absl::Duration silence = world_.scheduler.now().steady - session->second.heard;
    if (silence >= core::Options().lease) continue;
    world_.violations.Add(
        absl::StrCat("a node was declared silent ", absl::FormatDuration(silence),
                     " after a message of its worker: ", close.status.ToString()));
  }
}

void Coordinator::Commit(const core::Effects& effects) {
  const std::set<std::string> recovered = RecoveredJobs(effects);
  disk_.recovered.insert(recovered.begin(), recovered.end());
  if (!effects.writes.empty()) disk_.committers.push_back(process_);
  for (const std::vector<store::Mutation>& batch : core::SplitIntoBatches(effects.writes)) {
    size_t bytes = 0;
    for (const store::Mutation& write : batch) {
      bytes += write.key.size() + write.value.value_or("").size();
      disk_.records.erase(write.key);
      if (!write.value.has_value()) continue;
      disk_.records[write.key] = *write.value;
      if (absl::StartsWith(write.key, core::kPlacementPrefix)) {
        NameInstance(write, !recovered.empty());
      }
    }
    if (batch.size() <= core::kBatchOperations && bytes <= core::kBatchBytes) continue;
    world_.violations.Add(
        absl::StrCat("a batch has ", batch.size(), " writes with ", bytes, " bytes"));
  }
  world_.NotifyCheckers(&Checker::OnCommit, effects.writes);
}

void Coordinator::NameInstance(const store::Mutation& placement, bool recovers) {
  v1::PlacementRecord record;
  record.ParseFromString(*placement.value);
  const std::pair<std::string, uint64_t> generation(record.job_id(), record.generation());
  if (disk_.instances.count(generation) != 0) return;
  // A generation that is recovered from the workers is the one that they run.
  uint64_t& newest = newest_instances_[generation];
  disk_.instances[generation] = recovers && newest > 0 ? newest : ++newest;
}

void Coordinator::ReleaseCommitted() {
  while (!turns_.empty() && turns_.front().committed) {
    const core::Effects effects = std::move(turns_.front().effects);
    turns_.pop_front();
    ++first_turn_;
    Release(effects);
  }
}

void Coordinator::Release(const core::Effects& effects) {
  for (const core::Send& send : effects.sends) {
    world_.NotifyCheckers(&Checker::OnSend, send.message, disk_.records);
    if (send.message.has_welcome()) {
      const auto& [node, incarnation] = workers_.at(send.session);
      world_.NotifyCheckers(&Checker::OnWelcome, node, incarnation);
    }
    Deliver(send);
  }
  for (const core::Reply& reply : effects.replies) {
    world_.NotifyCheckers(&Checker::OnReply, reply);
    const auto request = requests_.find(reply.request);
    if (request == requests_.end()) continue;
    const auto done = std::move(request->second);
    requests_.erase(request);
    done(reply);
  }
  for (const core::CloseSession& close : effects.closes) {
    auto session = sessions_.extract(close.session);
    if (session.empty()) continue;
    const std::shared_ptr<Stream> stream = session.mapped().stream;
    stream->coordinator_end = nullptr;
    stream->ToWorker([stream, closed = session.mapped().closed, status = close.status] {
      closed(status);
      stream->Break();
    });
  }
}

void Coordinator::Deliver(const core::Send& send) {
  const auto session = sessions_.find(send.session);
  if (session == sessions_.end()) return;
  v1::CoordinatorMessage message = send.message;
  if (message.has_launch()) {
    v1::Launch& launch = *message.mutable_launch();
    const auto instance = disk_.instances.find({launch.job_id(), launch.generation()});
    if (instance == disk_.instances.end()) return;  // GenerationsAreNew has added a violation
    (*launch.mutable_spec()->mutable_env())[kInstanceVariable] = absl::StrCat(instance->second);
  }
  session->second.stream->ToWorker(
      [deliver = session->second.deliver, message = std::move(message)] { deliver(message); });
}

void Coordinator::ArmTick() {
  const SteadyTime deadline = core_->NextDeadline();
  if (deadline == SteadyTime::Infinite() || deadline >= armed_) return;
  armed_ = deadline;
  const SteadyTime due = std::max(deadline, paused_until_) +
                         world_.random.Between(absl::ZeroDuration(), absl::Milliseconds(3));
  world_.scheduler.At(due, [this, deadline, process = process_] {
    if (process != process_ || !up()) return;
    if (armed_ == deadline) armed_ = SteadyTime::Infinite();
    const SteadyTime now = world_.scheduler.now().steady;
    if (paused_until_ > now) {
      ArmTick();
    } else if (core_->NextDeadline() <= now) {
      Step(core::Tick{now - core_->NextDeadline()});
    }
    if (up()) ArmTick();
  });
}

}  // namespace muster::simulation
