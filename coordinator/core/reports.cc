// What comes over a worker's session: heartbeats, reports of ranks, keys and barriers.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "coordinator/core/core_impl.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

constexpr size_t kFailureMessageBytes = 4096;
// Of a rank whose generation has enough of them.
constexpr size_t kShortMessageBytes = 256;

bool IsInsideCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// The first so many bytes, and the last, of whole characters: half of one could not be read back
// from the records.
void KeepFirst(size_t bytes, std::string& text) {
  if (text.size() <= bytes) return;
  while (bytes > 0 && IsInsideCharacter(text[bytes])) --bytes;
  text.resize(bytes);
}
void KeepLast(size_t bytes, std::string& text) {
  if (text.size() <= bytes) return;
  size_t begin = text.size() - bytes;
  while (begin < text.size() && IsInsideCharacter(text[begin])) ++begin;
  text.erase(0, begin);
}

// What a rank's end may take up in the records, with `room` for text. Of ranks that did not fail,
// the last lines are not worth keeping.
v1::ExitInfo Bounded(v1::ExitInfo exit, size_t room) {
  std::string& tail = *exit.mutable_stderr_tail();
  KeepLast(limits::kStderrTailBytes, tail);
  if (!IsFailure(exit) || exit.stopped_by_worker()) tail.clear();
  const auto shorten = [&exit](size_t bytes) {
    if (exit.has_failure()) KeepFirst(bytes, *exit.mutable_failure()->mutable_message());
  };
  shorten(kFailureMessageBytes);
  if (ExitTextBytes(exit) > room) {
    tail.clear();
    shorten(kShortMessageBytes);
  }
  return exit;
}

v1::CoordinatorMessage MakeKeyValue(const std::string& job, uint64_t generation,
                                    const std::string& key, absl::string_view value,
                                    const absl::Status& status) {
  v1::CoordinatorMessage message;
  v1::KeyValue& answer = *message.mutable_key_value();
  answer.set_job_id(job);
  answer.set_generation(generation);
  answer.set_key(key);
  answer.set_value(std::string(value));
  answer.set_code(static_cast<int>(status.code()));
  answer.set_message(std::string(status.message()));
  return message;
}

absl::Status OverError(const std::string& job, uint64_t generation) {
  return absl::AbortedError(
      absl::StrCat("generation ", generation, " of job ", job, " is over or stopping"));
}

v1::CoordinatorMessage MakeRelease(const std::string& job, uint64_t generation,
                                   const v1::BarrierId& barrier, const absl::Status& status) {
  v1::CoordinatorMessage message;
  v1::ReleaseBarrier& release = *message.mutable_release_barrier();
  release.set_job_id(job);
  release.set_generation(generation);
  *release.mutable_barrier() = barrier;
  release.set_code(static_cast<int>(status.code()));
  release.set_message(std::string(status.message()));
  return message;
}

}  // namespace

void Core::Impl::Handle(const SessionMessage& event) {
  const auto entry = sessions_.find(event.session);
  if (entry == sessions_.end()) return;  // of a session that was replaced or given up
  Node& node = nodes_.at(entry->second);
  node.last_heard = now_.steady;
  timers_.Set({TimerKey::Kind::kLease, node.record.name()}, now_.steady + options_.lease);
  const v1::WorkerMessage& message = event.message;
  switch (message.kind_case()) {
    case v1::WorkerMessage::kHeartbeat: {
      v1::CoordinatorMessage ack;
      ack.mutable_heartbeat_ack()->set_sequence(message.heartbeat().sequence());
      SendTo(node, std::move(ack));
      for (const v1::GenerationReport& report : message.heartbeat().progress()) {
        OnReport(node, report, /*inventory=*/false);
      }
      break;
    }
    case v1::WorkerMessage::kReport:
      OnReport(node, message.report(), /*inventory=*/false);
      break;
    case v1::WorkerMessage::kPutKey:
      OnPutKey(node, message.put_key());
      break;
    case v1::WorkerMessage::kGetKey:
      OnGetKey(node, message.get_key());
      break;
    case v1::WorkerMessage::kArriveBarrier:
      OnArrive(node, message.arrive_barrier());
      break;
    case v1::WorkerMessage::kLeaving:
      OnLeaving(node);
      break;
    case v1::WorkerMessage::kSlots:
      OnSlots(node, message.slots());
      break;
    case v1::WorkerMessage::kHello:
      Close(event.session, absl::InvalidArgumentError("a session has one Hello"));
      node.session.reset();
      node.state = v1::SUSPECT;
      break;
    case v1::WorkerMessage::kLogUnavailable:  // the service's
    case v1::WorkerMessage::KIND_NOT_SET:
      break;
  }
}

// -------------------------------------------------------------------------------------------------
// reports of ranks

void Core::Impl::OnReport(Node& node, const v1::GenerationReport& report, bool inventory) {
  const JobId id(report.job_id());
  const Generation number(report.generation());
  Job* job = FindJob(id);
  GenerationState* generation = FindGeneration(job, report.generation(), node.name());
  std::vector<const v1::RankReport*> strays;
  if (generation == nullptr) {
    for (const v1::RankReport& rank : report.ranks()) strays.push_back(&rank);
    OnStrayReport(node, id, number, strays, inventory);
    return;
  }
  const uint32_t node_rank = *generation->NodeRank(node.name());
  const auto range = generation->RanksOf(node_rank);
  for (const v1::RankReport& rank : report.ranks()) {
    if (rank.rank() < range.first || rank.rank() >= range.second) continue;
    if (generation->ranks[rank.rank()].lost) {
      strays.push_back(&rank);
    } else {
      ApplyReport(node, *job, rank, inventory);
    }
  }
  for (const v1::BarrierId& passed : report.passed_barriers()) {
    for (const v1::BarrierId& barrier : generation->barriers.MarkPassed(passed)) {
      ReleaseBarrier(*job, barrier, absl::OkStatus());
    }
  }
  LoseAccusedNodes(*job);
  Advance(*job);
  AbortHopelessBarriers(*job);
  if (!strays.empty()) OnStrayReport(node, id, number, strays, inventory);
}

void Core::Impl::ApplyReport(Node& node, Job& job, const v1::RankReport& report, bool inventory) {
  GenerationState& generation = *job.generation;
  RankState& rank = generation.ranks[report.rank()];
  if (report.has_summary() && rank.rank == 0 && job.is_train() && !job.job().has_summary()) {
    KeepSummary(job, report.summary());
  }
  if (report.has_progress()) {
    rank.progress = report.progress();
    if (rank.rank == 0) {
      *job.record.mutable_job()->mutable_progress() = report.progress();
      TellOfSkippedSteps(job, report.progress());
    }
    job.record.set_highest_step(std::max(job.record.highest_step(), report.progress().step()));
    MarkChanged(job);
  }
  // An inventory is the worker's word, which has it from the rank some time ago.
  if (!inventory || report.phase() > rank.phase) rank.last_seen = now_.steady;
  if (report.pid() != 0) rank.pid = report.pid();
  rank.started |=
      report.pid() != 0 || (report.phase() >= v1::STARTED && report.phase() < v1::EXITED);
  if (report.has_join() && !rank.join.has_value()) rank.join = report.join();
  if (rank.phase == v1::EXITED) return;
  if (report.has_failure() && report.phase() != v1::EXITED && !rank.failure.has_value()) {
    rank.failure = report.failure();
    job.record.set_highest_step(std::max(job.record.highest_step(), report.failure().step()));
    NoteFailureReport(job, rank);
    MarkChanged(job);
  }
  if (report.phase() <= rank.phase || !v1::RankPhase_IsValid(report.phase())) return;
  MarkChanged(job);
  if (report.phase() != v1::EXITED) {
    generation.Reach(rank, report.phase());
    return;
  }
  v1::RankRecord& record = generation.RecordOf(rank);
  v1::ExitInfo exit = report.exit();
  if (!exit.has_failure() && report.has_failure()) {
    *exit.mutable_failure() = report.failure();
  } else if (!exit.has_failure() && rank.failure.has_value()) {
    *exit.mutable_failure() = *rank.failure;
  }
  const size_t used = std::min(generation.exit_text_bytes, limits::kExitTextBytesPerGeneration);
  *record.mutable_exit() = Bounded(std::move(exit), limits::kExitTextBytesPerGeneration - used);
  generation.exit_text_bytes += ExitTextBytes(record.exit());
  record.set_exited(true);
  generation.Reach(rank, v1::EXITED);
  node.Vacate({job.id(), Generation(generation.record.generation()), rank.rank});
  capacity_changed_ = true;
  MarkPlacement(job, rank.node_rank);
  NoteExit(job, rank, node);
}

// The first time, and then whenever there are twice as many: a history has room for few events.
void Core::Impl::TellOfSkippedSteps(Job& job, const v1::Progress& progress) {
  const uint64_t skipped = progress.skipped_steps();
  const uint64_t told = job.record.told_skipped_steps();
  if (skipped == 0 || skipped / 2 < told || skipped == told) return;
  job.record.set_told_skipped_steps(skipped);
  AddEvent(job, events::kLossScaleLowered,
           absl::StrCat("the loss scale is ", absl::StrFormat("%.12g", progress.loss_scale()),
                        " at step ", progress.step(), ": gradients overflowed, and ", skipped,
                        skipped == 1 ? " step was skipped" : " steps were skipped in all"));
}

void Core::Impl::KeepSummary(Job& job, const v1::TrainSummary& reported) {
  v1::TrainSummary& summary = *job.record.mutable_job()->mutable_summary();
  summary = reported;
  if (summary.losses_size() > static_cast<int>(limits::kRecordedLosses)) {
    summary.mutable_losses()->Truncate(limits::kRecordedLosses);
  }
  if (summary.has_first_step_time()) {
    const absl::Time start = job.job().generation() == 1
                                 ? FromProto(job.job().submit_time())
                                 : FromProto(job.record.generation_start_time());
    summary.set_seconds_to_first_step(
        std::max(0.0, absl::ToDoubleSeconds(FromProto(summary.first_step_time()) - start)));
  }
  MarkJob(job);
}

void Core::Impl::OnStrayReport(Node& node, const JobId& id, Generation number,
                               const std::vector<const v1::RankReport*>& ranks, bool inventory) {
  const Job* job = FindJob(id);
  const v1::GenerationRecord* record = nullptr;
  bool lives = false;
  if (job != nullptr) {
    lives = job->generation.has_value() && job->generation->record.generation() == number.value();
    const auto past = job->past.find(number);
    if (lives) record = &job->generation->record;
    if (past != job->past.end()) record = &past->second;
  }
  const auto known = node.leftovers.find({id, number});
  std::set<uint32_t> leftovers =
      known == node.leftovers.end() ? std::set<uint32_t>() : known->second;
  const bool had_leftovers = !leftovers.empty();
  for (const v1::RankReport* report : ranks) {
    const RankRef ref{id, number, report->rank()};
    if (report->phase() == v1::EXITED) {
      if (leftovers.erase(report->rank()) == 0) continue;
      node.Vacate(ref);
      capacity_changed_ = true;
    } else if (inventory && leftovers.insert(report->rank()).second && record != nullptr) {
      node.Occupy(ref, SlotsOf(*record, node.name(), report->rank()));
    }
  }
  if (leftovers.empty()) {
    node.leftovers.erase({id, number});
    if (!lives && (inventory || had_leftovers)) SendForget(node, id, number);
    return;
  }
  node.leftovers[{id, number}] = std::move(leftovers);
  if (!inventory) return;  // has been told
  SendStop(node, id, number,
           job == nullptr ? absl::ZeroDuration() : FromProto(job->job().spec().grace_period()),
           reasons::kNodeLost, "the job went on without these ranks, or is over", /*abort=*/true);
}

// -----------------------------------------------------------------------------------------------
// slots

void Core::Impl::OnSlots(Node& node, const v1::SlotReport& report) {
  for (const v1::SlotCondition& condition : node.SetConditions(report)) {
    const std::string text =
        absl::StrCat(node.NameOfSlot(condition.index()), ": ", condition.unavailable());
    effects_.logs.push_back(absl::StrCat("nothing is placed on ", text));
    const auto holders = node.busy.equal_range(condition.index());
    for (auto holder = holders.first; holder != holders.second; ++holder) {
      const RankRef& rank = holder->second;
      if (Job* job = FindJob(rank.job); job != nullptr && !node.HasLeftover(rank)) {
        AddEvent(*job, events::kDeviceUnhealthy,
                 absl::StrCat("rank ", rank.rank, " runs on ", text));
      }
    }
  }
  // One of those that are well now may be what a job waits for.
  capacity_changed_ = true;
}

// -----------------------------------------------------------------------------------------------
// keys and barriers

void Core::Impl::OnPutKey(Node& node, const v1::PutKey& put) {
  Job* job = FindJob(JobId(put.job_id()));
  GenerationState* generation = FindGeneration(job, put.generation(), node.name());
  if (generation == nullptr || job->state() == v1::STOPPING) {
    SendTo(node, MakeKeyValue(put.job_id(), put.generation(), put.key(), "",
                              OverError(put.job_id(), put.generation())));
    return;
  }
  const absl::StatusOr<std::vector<NodeName>> waiting =
      generation->keys.Put(put.key(), put.value());
  if (!waiting.ok()) {
    SendTo(node, MakeKeyValue(put.job_id(), put.generation(), put.key(), "", waiting.status()));
    return;
  }
  const v1::CoordinatorMessage answer =
      MakeKeyValue(put.job_id(), put.generation(), put.key(), put.value(), absl::OkStatus());
  SendTo(node, answer);
  for (const NodeName& name : *waiting) {
    if (name != node.name()) SendTo(nodes_.at(name), answer);
  }
}

void Core::Impl::OnGetKey(Node& node, const v1::GetKey& get) {
  Job* job = FindJob(JobId(get.job_id()));
  GenerationState* generation = FindGeneration(job, get.generation(), node.name());
  absl::StatusOr<const std::string*> value = OverError(get.job_id(), get.generation());
  if (generation != nullptr && job->state() != v1::STOPPING) {
    value = generation->keys.Get(get.key(), node.name());
  }
  if (value.ok() && *value == nullptr) return;  // answered when it is put
  SendTo(node, MakeKeyValue(get.job_id(), get.generation(), get.key(),
                            value.ok() ? **value : std::string(), value.status()));
}

void Core::Impl::OnArrive(Node& node, const v1::ArriveBarrier& arrive) {
  Job* job = FindJob(JobId(arrive.job_id()));
  GenerationState* generation = FindGeneration(job, arrive.generation(), node.name());
  if (generation == nullptr || job->state() == v1::STOPPING) {
    SendTo(node, MakeRelease(arrive.job_id(), arrive.generation(), arrive.barrier(),
                             OverError(arrive.job_id(), arrive.generation())));
    return;
  }
  const auto range = generation->RanksOf(*generation->NodeRank(node.name()));
  std::vector<uint32_t> ranks;
  for (const uint32_t rank : arrive.ranks()) {
    if (rank >= range.first && rank < range.second && !generation->ranks[rank].lost) {
      ranks.push_back(rank);
      generation->ranks[rank].last_seen = now_.steady;
    }
  }
  const absl::StatusOr<BarrierTable::Outcome> outcome =
      generation->barriers.Arrive(arrive.barrier(), ranks, now_.steady);
  if (!outcome.ok() || outcome->already_released) {
    SendTo(node,
           MakeRelease(arrive.job_id(), arrive.generation(), arrive.barrier(), outcome.status()));
    return;
  }
  if (outcome->released.empty()) {
    WaitBegins(*job);
  } else {
    stats_.OnBarrier(generation->barriers.last_wait());
  }
  for (const v1::BarrierId& barrier : outcome->released) {
    ReleaseBarrier(*job, barrier, absl::OkStatus());
  }
  AbortHopelessBarriers(*job);
}

void Core::Impl::AbortHopelessBarriers(Job& job) {
  if (!job.generation.has_value() || job.generation->clean_exits == 0) return;
  GenerationState& generation = *job.generation;
  // A coordinator that was restarted first hears everybody: who ended may have arrived before.
  for (const v1::NodePlacement& placement : generation.record.nodes()) {
    const Node& node = nodes_.at(NodeName(placement.node()));
    if (!node.seen && node.state != v1::LOST) return;
  }
  for (const BarrierTable::Open& open : generation.barriers.ListOpen()) {
    const std::vector<uint32_t> missing = generation.barriers.Missing(open.barrier);
    const auto ended = std::find_if(missing.begin(), missing.end(), [&](uint32_t rank) {
      return generation.ranks[rank].phase == v1::EXITED;
    });
    if (ended == missing.end()) continue;
    generation.barriers.Abort(open.barrier);
    ReleaseBarrier(
        job, open.barrier,
        absl::AbortedError(absl::StrCat("rank ", *ended, " ended without arriving at barrier ",
                                        open.barrier.group(), "/", open.barrier.sequence())));
  }
}

void Core::Impl::ReleaseBarrier(const Job& job, const v1::BarrierId& barrier,
                                const absl::Status& status) {
  const GenerationState& generation = *job.generation;
  const v1::CoordinatorMessage message =
      MakeRelease(job.job().job_id(), generation.record.generation(), barrier, status);
  for (int node_rank = 0; node_rank < generation.record.nodes_size(); ++node_rank) {
    const v1::NodePlacement& placement = generation.placement(node_rank);
    const Node& node = nodes_.at(NodeName(placement.node()));
    if (node.record.incarnation() == placement.incarnation()) SendTo(node, message);
  }
}

}  // namespace muster::core
