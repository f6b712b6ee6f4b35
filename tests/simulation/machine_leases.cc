// The leases of a simulated machine's ranks, and the identity of the coordinator's store.
#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "spec/cut_off.h"
#include "tests/simulation/machine.h"

namespace muster::simulation {

agent::LeaseKeeper::Outside Machine::MakeLeaseOutside() {
  using Lease = agent::LeaseKeeper::Lease;
  agent::LeaseKeeper::Outside outside;
  outside.held = [this] {
    std::vector<Lease> held;
    for (const auto& [key, holding] : holdings_) {
      const bool live =
          std::any_of(holding.ranks.begin(), holding.ranks.end(),
                      [](const auto& entry) { return entry.second.stage != Stage::kEnded; });
      if (live) {
        held.push_back({key.first, key.second, FromProto(holding.launch.job_lease()),
                        !spec::ContinuesWhenCutOff(holding.launch.spec())});
      }
    }
    return held;
  };
  outside.set_deadline = [this](const Lease& lease, SteadyTime deadline) {
    SetDeadline({lease.job_id, lease.generation}, deadline);
  };
  outside.end = [this](const Lease& lease) {
    const Key key(lease.job_id, lease.generation);
    const auto entry = holdings_.find(key);
    if (entry == holdings_.end()) return;
    for (auto& [number, rank] : entry->second.ranks) {
      if (rank.stage == Stage::kEnded) continue;
      CheckMayEnd(key, answered_by_wrong_store_, "its lease was declared lost");
      End(entry->second, rank, StoppedByWorker(SIGKILL));
    }
  };
  outside.ask = [this](v1::LeaseQuestion question, absl::Duration patience,
                       std::function<void(const v1::PeerAnswer&)> answered,
                       std::function<void()> done) {
    AskPeers(std::move(question), patience, std::move(answered), std::move(done));
  };
  outside.probe = [this](absl::Duration patience, std::function<void()> done) {
    Probe([done = std::move(done)](bool refused) {
      if (refused) done();
    });
  };
  outside.fence_set = [this]() -> const v1::FenceSet& { return promises_->fence_set(); };
  return outside;
}

agent::LeaseWitness::Outside Machine::MakeWitnessOutside() {
  agent::LeaseWitness::Outside outside;
  outside.now = [this] { return world_.scheduler.now().steady; };
  outside.address = [this] { return AcknowledgedAddress(); };
  outside.forward = [this](const v1::LeaseQuestion& question) {
    v1::WorkerMessage message;
    *message.mutable_lease_question() = question;
    Send(message);
  };
  outside.probe = [this](std::function<void(std::optional<SteadyTime>)> done) {
    Probe([done = std::move(done), sent = world_.scheduler.now().steady](bool refused) {
      done(refused ? std::optional(sent) : std::nullopt);
    });
  };
  outside.answer = [this](uint64_t question, v1::PeerAnswer answer) {
    if (auto reply = replies_.extract(question)) reply.mapped()(answer, 0);
  };
  return outside;
}

void Machine::Probe(std::function<void(bool refused)> done) {
  const auto address = acknowledged_address_;
  // The connection and its refusal are on their way for a while.
  world_.scheduler.After(world_.random.Between(absl::ZeroDuration(), absl::Milliseconds(500)),
                         [this, address, done = std::move(done), worker = worker_] {
                           WhenWorkerRuns([=, this] {
                             if (worker != worker_) return;
                             const bool reachable = cut_until_ <= world_.scheduler.now().steady &&
                                                    world_.IsOpenBothWays(id(), 0);
                             const bool refused =
                                 address.has_value() && reachable && coordinator_.Refuses(*address);
                             if (refused) world_.CountFault("refusals");
                             done(refused);
                           });
                         });
}

void Machine::SendToPeer(uint64_t to, std::function<void()> deliver) {
  const uint64_t copies = world_.random.Chance(0.1) ? 2 : 1;
  for (uint64_t i = 0; i < copies; ++i) {
    // Some messages are late, or arrive twice.
    const absl::Duration delay = world_.random.Between(
        absl::ZeroDuration(), world_.loses_messages && world_.random.Chance(0.1)
                                  ? absl::Seconds(30)
                                  : absl::Milliseconds(5));
    world_.scheduler.After(delay, [this, to, deliver] {
      if (world_.IsOpen(id(), to)) deliver();
    });
  }
}

void Machine::AskAsPeer(uint64_t from, v1::LeaseQuestion question, Reply reply) {
  if (!worker_up_ || is_old_) return;
  WhenWorkerRuns([this, from, question = std::move(question), reply = std::move(reply)]() mutable {
    question.set_id(next_question_++);
    replies_[question.id()] = [this, from, reply](v1::PeerAnswer answer, uint64_t process) {
      answer.set_node_name(node());
      SendToPeer(from, [reply, answer, process] { reply(answer, process); });
    };
    witness_->Ask(question, absl::Seconds(2));
  });
}

void Machine::SetDeadline(const Key& key, SteadyTime deadline) {
  const auto held = holdings_.find(key);
  if (held == holdings_.end()) return;
  held->second.deadline = deadline;
  const absl::Duration margin = agent::LeaseMargin(FromProto(held->second.launch.job_lease()));
  // Clocks differ, and timers and processes take time.
  absl::Duration late = world_.random.Between(absl::ZeroDuration(), 0.9 * margin);
  if (world_.mutation == Mutation::kNoMargin) late += margin;
  world_.scheduler.At(deadline + late, [this, key, boot = boot_] {
    const auto entry = holdings_.find(key);
    if (boot != boot_ || entry == holdings_.end()) return;
    Holding& expired = entry->second;
    if (expired.deadline > world_.scheduler.now().steady) return;
    for (auto& [number, rank] : expired.ranks) {
      if (rank.stage == Stage::kEnded) continue;
      ++expired_leases_;
      v1::ExitInfo exit;
      exit.set_signal(SIGKILL);
      exit.set_lease_expired(true);
      End(expired, rank, exit);
    }
  });
}

void Machine::AskPeers(v1::LeaseQuestion question, absl::Duration patience,
                       std::function<void(const v1::PeerAnswer&)> answered,
                       std::function<void()> done) {
  question.set_node_name(node());
  question.set_incarnation(incarnation_);
  question.set_coordinator_address(AcknowledgedAddress());
  membership_->Describe(question);
  const auto open = std::make_shared<bool>(true);
  const SteadyTime asked_at = world_.scheduler.now().steady;
  const auto reply = [this, open, answered = std::move(answered), worker = worker_, question,
                      asked_at](v1::PeerAnswer answer, uint64_t process) {
    WhenWorkerRuns([=, this]() mutable {
      if (worker != worker_ || !*open) return;
      if (answer.has_coordinator()) {
        answered_by_wrong_store_ = IsWrongStore(process);
        if (!membership_->Obeys(answer.coordinator())) {
          world_.CountFault("lease answers from wrong stores");
          answer.clear_coordinator();
        }
      }
      CountAnswer(answer);
      const bool agrees = !answer.has_coordinator() && !answer.has_refused();
      if (world_.mutation == Mutation::kAgreementIsEvidence && agrees) {
        keeper_->OnRefused(asked_at);
      }
      answered(answer);
    });
  };
  options_.ask(question, reply);
  world_.scheduler.After(patience, [this, open, done = std::move(done), worker = worker_] {
    WhenWorkerRuns([=, this] {
      *open = false;
      if (worker == worker_) done();
    });
  });
}

void Machine::CountAnswer(const v1::PeerAnswer& answer) {
  if (!answer.vouched().empty()) world_.CountFault("vouchers");
  for (const v1::LeasedGeneration& leased : answer.coordinator().generations()) {
    world_.CountFault(leased.lost() ? "answers: lost" : "answers: time left");
  }
}

void Machine::Tick() {
  world_.scheduler.After(absl::Milliseconds(500), [this, worker = worker_] {
    if (worker != worker_ || !worker_up_ || is_old_) return;
    if (IsWorkerPaused()) return WhenWorkerRuns([this] { Tick(); });
    keeper_->Tick(world_.scheduler.now().steady);
    // Without ranks there is no conflict.
    if (membership_->in_conflict() && welcomed_ && !HasLiveRanks()) BreakStream();
    Tick();
  });
}

void Machine::StoreIdentity() {
  stored_identity_.Clear();
  membership_->Describe(/*holds_generations=*/true, stored_identity_);
  stored_seen_ = seen_;
  identity_stored_ = world_.scheduler.now().steady;
}

void Machine::RestoreIdentity() {
  seen_ = stored_seen_;
  if (stored_identity_.cluster_id().empty()) return;
  v1::Welcome welcome;
  welcome.set_cluster_id(stored_identity_.cluster_id());
  welcome.set_commit_index(stored_identity_.commit_index());
  welcome.set_coordinator_start(stored_identity_.coordinator_start());
  membership_->OnWelcome(welcome, /*has_live_ranks=*/false);
}

bool Machine::IsWrongStore(uint64_t process) const {
  return HasLiveRanks() && seen_.index != 0 && !coordinator_.HadCommit(process, seen_);
}

void Machine::CheckMayEnd(const Key& key, bool wrong_store, const std::string& why) {
  // An operator who recovers a job decides on all of its ranks.
  if (is_old_ || !wrong_store || coordinator_.HasRecovered(key.first)) return;
  world_.violations.Add(absl::StrCat(key.first, " generation ", key.second, " on ", node(),
                                     " ends because ", why, " by a coordinator with another ",
                                     "store than that of the rank"));
}

}  // namespace muster::simulation
