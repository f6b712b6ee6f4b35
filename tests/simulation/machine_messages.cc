// A simulated machine's handling of the coordinator's messages.
#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "glog/logging.h"
#include "spec/cut_off.h"
#include "tests/simulation/machine.h"

namespace muster::simulation {
namespace {

std::string Brief(const v1::CoordinatorMessage& message) {
  v1::CoordinatorMessage brief = message;
  if (brief.has_launch()) brief.mutable_launch()->clear_spec();
  return brief.ShortDebugString();
}

}  // namespace

void Machine::Receive(const v1::CoordinatorMessage& message) {
  if (!worker_up_) return;
  if (!message.has_heartbeat_ack()) {
    world_.Note(absl::StrCat("machine ", id(), " (", node(), ") receives ", Brief(message)));
  }
  CheckVersion(message);
  if (message.has_welcome()) return OnWelcome(message.welcome());
  if (message.has_heartbeat_ack()) return OnHeartbeatAck(message.heartbeat_ack());
  if (message.has_send_job_records()) return SendJobRecords();
  if (message.has_join_cluster()) return OnJoinCluster(message.join_cluster());
  if (!Obeys()) return;
  switch (message.kind_case()) {
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
    case v1::CoordinatorMessage::kLeaseAnswer:
      if (auto reply = replies_.extract(message.lease_answer().id())) {
        v1::PeerAnswer answer;
        *answer.mutable_coordinator() = message.lease_answer();
        reply.mapped()(answer, stream_->coordinator);
      }
      break;
    case v1::CoordinatorMessage::kFenceSet:
      OnFenceSet(message.fence_set());
      break;
    case v1::CoordinatorMessage::kBans:
      OnBans(message.bans());
      break;
    case v1::CoordinatorMessage::kWaitNotice:
      ++world_.wait_notices;
      break;
    default:
      break;
  }
}

void Machine::CheckVersion(const v1::CoordinatorMessage& message) {
  const uint32_t version = is_old_ ? kOldestProtocolVersion : kProtocolVersion;
  const bool agreed = !message.has_welcome() || message.welcome().protocol_version() == version;
  const bool understood =
      !is_old_ || (!message.has_send_job_records() && !message.has_join_cluster() &&
                   !message.has_lease_answer() && !message.has_fence_set() && !message.has_bans());
  if (agreed && understood) return;
  world_.violations.Add(absl::StrCat("a worker of protocol version ", version, " received ",
                                     message.ShortDebugString()));
}

void Machine::OnWelcome(const v1::Welcome& welcome) {
  welcomed_ = true;
  refused_ = false;
  if (is_old_) {
    ReportAgain();
    if (leaving_) SendLeaving();
    return;
  }
  session_of_wrong_store_ = IsWrongStore(stream_->coordinator);
  membership_->OnWelcome(welcome, HasLiveRanks());
  if (membership_->in_conflict()) {
    world_.CountFault("conflicts of workers");
    return;
  }
  seen_ = {stream_->coordinator, welcome.commit_index()};
  StoreIdentity();
  acknowledged_address_ = coordinator_.address();
  keeper_->OnAcknowledged(hello_sent_);
  ReportAgain();
  if (leaving_) SendLeaving();
}

void Machine::OnHeartbeatAck(const v1::HeartbeatAck& ack) {
  if (is_old_) return;
  const SteadyTime now = world_.scheduler.now().steady;
  membership_->OnHeartbeatAck(ack, now);
  if (membership_->in_conflict()) return;
  if (ack.commit_index() > seen_.index) seen_ = {stream_->coordinator, ack.commit_index()};
  if (now - identity_stored_ >= agent::ClusterIdentity::kStoreInterval) StoreIdentity();
  const auto sent = sent_.find(ack.sequence());
  if (sent != sent_.end()) keeper_->OnAcknowledged(sent->second);
}

void Machine::OnFenceSet(const v1::FenceSet& set) {
  CHECK(promises_->SetFenceSet(set).ok());
  v1::WorkerMessage message;
  message.set_fence_set_kept(set.id());
  Send(message);
}

void Machine::OnBans(const v1::Bans& bans) {
  if (!bans.bans().empty()) world_.CountFault("bans");
  v1::WorkerMessage message;
  if (world_.mutation == Mutation::kHeartbeatsAreBans) {
    *message.mutable_bans_kept()->mutable_bans() = bans.bans();
    message.mutable_bans_kept()->set_round(bans.round());
  } else {
    *message.mutable_bans_kept() = *promises_->Ban(bans, world_.scheduler.now().steady);
  }
  Send(message);
}

void Machine::OnJoinCluster(const v1::JoinCluster& join) {
  membership_->OnJoinCluster(join);
  seen_ = {stream_->coordinator, join.commit_index()};
  StoreIdentity();
  BreakStream();
}

void Machine::RefuseLaunch(const v1::Launch& launch) {
  const auto held = holdings_.find({launch.job_id(), launch.generation()});
  if (held != holdings_.end()) {
    const v1::Launch& before = held->second.launch;
    bool same = before.world_size() == launch.world_size() &&
                before.node_rank() == launch.node_rank() &&
                before.ranks_size() == launch.ranks_size();
    for (int i = 0; same && i < launch.ranks_size(); ++i) {
      same = before.ranks(i).SerializeAsString() == launch.ranks(i).SerializeAsString();
    }
    if (same) return;
  }
  world_.violations.Add(absl::StrCat("generation ", launch.generation(), " of ", launch.job_id(),
                                     " was launched on ", node(),
                                     ", which had reported this number or a higher one"));
}

void Machine::OnLaunch(const v1::Launch& launch) {
  const Key key(launch.job_id(), launch.generation());
  const bool late = std::any_of(holdings_.begin(), holdings_.end(), [&key](const auto& entry) {
    return entry.first.first == key.first && entry.first.second >= key.second;
  });
  if (late) return RefuseLaunch(launch);
  for (auto& [other, holding] : holdings_) {
    if (other.first != key.first) continue;
    for (auto& [number, rank] : holding.ranks) {
      if (rank.stage == Stage::kEnded || rank.unkillable) continue;
      CheckMayEnd(other, session_of_wrong_store_, "a newer generation was launched");
      End(holding, rank, StoppedByWorker(SIGKILL));
    }
  }
  Holding& holding = holdings_[key];
  holding.launch = launch;
  if (!is_old_ && !spec::ContinuesWhenCutOff(launch.spec())) {
    SetDeadline(key, keeper_->DeadlineFor(FromProto(launch.job_lease())));
  }
  uint64_t instance = 0;
  CHECK(absl::SimpleAtoi(launch.spec().env().at(kInstanceVariable), &instance));
  for (const v1::RankPlacement& placement : launch.ranks()) {
    Rank& rank = holding.ranks[placement.rank()];
    rank.process = {options_.id,
                    key.first,
                    key.second,
                    instance,
                    placement.rank(),
                    {placement.slots().begin(), placement.slots().end()},
                    !launch.spec().has_train() && !is_old_};
    rank.report.set_rank(placement.rank());
    rank.report.set_phase(v1::PLACED);
    const bool expired = holding.deadline <= world_.scheduler.now().steady;
    if (leaving_ || expired) {
      // The worker starts no ranks any more, or was stopped when this launch arrived.
      rank.stage = Stage::kEnded;
      rank.report.set_phase(v1::EXITED);
      *rank.report.mutable_exit() = StoppedByWorker(leaving_ ? SIGTERM : SIGKILL);
      rank.report.mutable_exit()->set_stopped_by_worker(leaving_);
      rank.report.mutable_exit()->set_lease_expired(!leaving_);
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
    Act(entry->second, rank, absl::Milliseconds(1), absl::Milliseconds(100),
        [this](Holding& of, Rank& waited) { FetchUniqueId(of, waited); });
  }
}

void Machine::OnStop(const v1::StopGeneration& stop) {
  const auto entry = holdings_.find({stop.job_id(), stop.generation()});
  if (entry == holdings_.end() && is_old_) return;
  if (entry == holdings_.end()) {
    v1::WorkerMessage message;
    message.mutable_unknown_generation()->set_job_id(stop.job_id());
    message.mutable_unknown_generation()->set_generation(stop.generation());
    Send(message);
    return;
  }
  for (auto& [number, rank] : entry->second.ranks) {
    if (rank.stage == Stage::kGone || rank.stage == Stage::kEnded || rank.unkillable) continue;
    CheckMayEnd(entry->first, session_of_wrong_store_, "it was stopped");
    if (!world_.orderly && world_.random.Chance(0.02)) {
      OutliveKill(entry->first, rank);
      continue;
    }
    Later(entry->first, number, absl::Milliseconds(10), absl::Seconds(2),
          [this, worker = worker_](Holding& of, Rank& stopped) {
            if (stopped.unkillable) return;
            // Some ranks survive SIGTERM when the worker that would send SIGKILL is gone.
            if (worker != worker_ && world_.random.Chance(0.5)) return;
            End(of, stopped, StoppedByWorker(SIGTERM));
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
    Act(entry->second, rank, absl::Milliseconds(1), absl::Milliseconds(200),
        [this](Holding& of, Rank& waited) { SetConnected(of, waited); });
  }
}

void Machine::OnReleaseBarrier(const v1::ReleaseBarrier& release) {
  const auto entry = holdings_.find({release.job_id(), release.generation()});
  if (entry == holdings_.end()) return;
  Holding& holding = entry->second;
  if (release.code() != 0) {
    if (!world_.forgetful && absl::StrContains(release.message(), "ended without arriving")) {
      world_.NotifyCheckers(&Checker::OnHopeless, holding.ranks.begin()->second.process,
                            release.message());
    }
    for (auto& [number, rank] : holding.ranks) {
      if (rank.stage != Stage::kWaitsAtBarrier) continue;
      if (rank.barrier != release.barrier().sequence()) continue;
      rank.stage = Stage::kRunning;
      rank.report.mutable_failure()->set_code(release.code());
      rank.report.mutable_failure()->set_message(release.message());
      SendReport(holding, rank);
      Act(holding, rank, absl::Milliseconds(1), absl::Seconds(1),
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

}  // namespace muster::simulation
