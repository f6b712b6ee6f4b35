// The leases of a simulated machine's ranks, and the identity of the coordinator's store.
#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
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
      if (live) held.push_back({key.first, key.second, FromProto(holding.launch.job_lease())});
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
                       std::function<void(std::optional<v1::LeaseAnswer>)> done) {
    AskPeers(std::move(question), patience, std::move(done));
  };
  return outside;
}

void Machine::SetDeadline(const Key& key, SteadyTime deadline) {
  const auto held = holdings_.find(key);
  if (held == holdings_.end()) return;
  held->second.deadline = deadline;
  world_.scheduler.At(deadline, [this, key, boot = boot_] {
    const auto entry = holdings_.find(key);
    if (boot != boot_ || entry == holdings_.end()) return;
    Holding& expired = entry->second;
    if (expired.deadline > world_.scheduler.now().steady) return;
    for (auto& [number, rank] : expired.ranks) {
      if (rank.stage == Stage::kEnded) continue;
      v1::ExitInfo exit;
      exit.set_signal(SIGKILL);
      exit.set_lease_expired(true);
      End(expired, rank, exit);
    }
  });
}

void Machine::AskPeers(v1::LeaseQuestion question, absl::Duration patience,
                       std::function<void(std::optional<v1::LeaseAnswer>)> done) {
  question.set_node_name(node());
  question.set_incarnation(incarnation_);
  membership_->Describe(question);
  const auto pending = std::make_shared<decltype(done)>(std::move(done));
  const auto finish =
      [this, question, pending, worker = worker_,
       asked_at = world_.scheduler.now().steady](const std::optional<v1::LeaseAnswer>& answer) {
        if (worker != worker_ || *pending == nullptr) return;
        const auto finished = std::exchange(*pending, nullptr);
        const bool obeyed = answer.has_value() && membership_->Obeys(*answer);
        if (answer.has_value() && !obeyed) world_.CountFault("lease answers from wrong stores");
        const auto used = obeyed ? answer : std::nullopt;
        CountAnswer(used);
        if (keeper_->acknowledged() <= asked_at) UnfenceUnanswered(question, used);
        finished(used);
      };
  const auto reply = [this, finish](const v1::LeaseAnswer& answer, uint64_t process) {
    if (IsIsolated()) return;
    answered_by_wrong_store_ = IsWrongStore(process);
    finish(answer);
  };
  const bool asked = !IsIsolated() && options_.ask(question, reply);
  world_.scheduler.After(asked ? patience : absl::ZeroDuration(),
                         [finish] { finish(std::nullopt); });
}

void Machine::CountAnswer(const std::optional<v1::LeaseAnswer>& answer) {
  if (!answer.has_value()) return world_.CountFault("questions without an answer");
  for (const v1::LeasedGeneration& leased : answer->generations()) {
    world_.CountFault(leased.lost() ? "answers: lost" : "answers: time left");
  }
}

void Machine::UnfenceUnanswered(const v1::LeaseQuestion& question,
                                const std::optional<v1::LeaseAnswer>& answer) {
  for (const v1::LeasedGeneration& asked : question.generations()) {
    const auto is_asked = [&asked](const v1::LeasedGeneration& leased) {
      return leased.job_id() == asked.job_id() && leased.generation() == asked.generation();
    };
    if (answer.has_value() &&
        std::any_of(answer->generations().begin(), answer->generations().end(), is_asked)) {
      continue;
    }
    const auto entry = holdings_.find({asked.job_id(), asked.generation()});
    if (entry == holdings_.end()) continue;
    for (const auto& [number, rank] : entry->second.ranks) {
      if (rank.stage != Stage::kEnded) {
        world_.NotifyCheckers(&Checker::OnUnfenced, rank.process);
      }
    }
  }
}

bool Machine::Forward(v1::LeaseQuestion question, Reply reply) {
  if (!worker_up_ || !welcomed_ || is_old_ || IsWorkerPaused() || IsIsolated()) return false;
  const absl::Duration silence = world_.scheduler.now().steady - keeper_->acknowledged();
  if (silence > absl::Seconds(2)) return false;
  question.set_id(next_question_++);
  forwarded_[question.id()] = std::move(reply);
  v1::WorkerMessage message;
  *message.mutable_lease_question() = std::move(question);
  Send(message);
  return true;
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
