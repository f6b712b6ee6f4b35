#include "worker/agent/generation/generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/wait_text.h"
#include "glog/logging.h"

namespace muster::agent {
namespace {

constexpr char kWorldFile[] = "/world.pb";
constexpr char kRendezvousFile[] = "/rendezvous.pb";

std::set<uint32_t> RanksOf(const v1::Launch& launch) {
  std::set<uint32_t> ranks;
  for (const v1::RankPlacement& placement : launch.ranks()) ranks.insert(placement.rank());
  return ranks;
}

}  // namespace

Generation::Generation(const GenerationContext& context, v1::Launch launch,
                       std::function<void()> on_settled)
    : context_(context),
      secrets_(TakeSecrets(launch)),
      launch_(std::move(launch)),
      on_settled_(std::move(on_settled)),
      rank_events_({[this](const Rank& rank) { reports_.Add(rank.placement().rank()); },
                    // The store may have disconnected the rank only just now.
                    [this] { store_.Tick(); }, [this] { FinishIfOver(); },
                    [this] { on_settled_(); }}),
      reports_(*context.loop, [this](const std::set<uint32_t>& ranks) { SendReports(ranks); }),
      rendezvous_(job_id(), number(), RanksOf(launch_), RendezvousOutside()),
      directives_(static_cast<size_t>(launch_.ranks_size())),
      master_(context, launch_, rendezvous_),
      store_(context, launch_, StoreEvents()) {
  for (const v1::RankPlacement& placement : launch_.ranks()) {
    ranks_.try_emplace(placement.rank(), context_, launch_, placement, rank_events_);
  }
}

Rendezvous::Outside Generation::RendezvousOutside() {
  Rendezvous::Outside outside;
  outside.send = context_.send;
  outside.run_after = [this](absl::Duration delay, std::function<void()> f) {
    context_.loop->RunAfter(delay, std::move(f));
  };
  outside.store = [this](const v1::RendezvousRecord& record, bool replace) {
    // Without fsync: ranks do not outlive a crash of the machine.
    const absl::Status stored = replace ? WriteMessage(File(kRendezvousFile), record, false)
                                        : AppendMessage(File(kRendezvousFile), record);
    // Best effort: it counts only if both this worker and the coordinator are replaced.
    LOG_IF(WARNING, !stored.ok()) << stored;
  };
  return outside;
}

JobStore::Events Generation::StoreEvents() {
  JobStore::Events events;
  events.on_ready = [this](const absl::Status& status) { startup_->OnStoreReady(status); };
  // Problems of no rank of this node are shown with the first.
  events.on_problem = [this](std::optional<uint32_t> rank, const std::string& problem) {
    ranks_.at(rank.value_or(ranks_.begin()->first)).Warn(problem);
  };
  events.on_ended = [this] { on_settled_(); };
  events.is_over = [this] { return over(); };
  return events;
}

bool Generation::over() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const auto& entry) { return entry.second.record().exited(); });
}

bool Generation::settled() const {
  return !store_.running() && std::all_of(ranks_.begin(), ranks_.end(),
                                          [](const auto& entry) { return entry.second.settled(); });
}

Rank* Generation::FindRank(uint32_t rank) {
  const auto it = ranks_.find(rank);
  return it == ranks_.end() ? nullptr : &it->second;
}

bool Generation::RankIsLive(uint32_t rank) const {
  const auto it = ranks_.find(rank);
  return it != ranks_.end() && !it->second.record().exited();
}

std::vector<uint32_t> Generation::SlotsInUse() const {
  std::vector<uint32_t> slots;
  for (const auto& [number, rank] : ranks_) {
    if (!started_ || rank.record().exited()) continue;
    slots.insert(slots.end(), rank.placement().slots().begin(), rank.placement().slots().end());
  }
  return slots;
}

v1::GenerationReport Generation::Inventory() {
  reports_.OnHello();
  v1::GenerationReport report;
  report.set_job_id(job_id());
  report.set_generation(number());
  for (const auto& [number, rank] : ranks_) *report.add_ranks() = rank.record().Described();
  for (v1::BarrierId& barrier : rendezvous_.PassedBarriers()) {
    *report.add_passed_barriers() = std::move(barrier);
  }
  std::optional<v1::StoreWaits> waits = store_.Waits();
  if (waits.has_value()) *report.mutable_store_waits() = *std::move(waits);
  return report;
}

void Generation::ResendChanged() {
  reports_.Resend();
  store_.SendWaits();
  // Tails of ranks that exited without a session were not sent.
  for (const auto& [number, rank] : ranks_) rank.SendLogTail();
}

void Generation::SendReports(const std::set<uint32_t>& ranks) {
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_report();
  report.set_job_id(job_id());
  report.set_generation(number());
  for (const uint32_t rank : ranks) *report.add_ranks() = ranks_.at(rank).record().Described();
  context_.send(std::move(message));
  for (const uint32_t rank : ranks) ranks_.at(rank).SendLogTail();
}

std::string Generation::File(const char* name) const {
  return context_.directory->Generation(job_id(), number()) + name;
}

void Generation::Start() {
  if (over()) return;
  started_ = true;
  for (auto& [number, rank] : ranks_) rank.record().Begin();
  startup_ = std::make_unique<Startup>(
      context_, launch_, std::exchange(secrets_, {}), ranks_, master_, store_,
      Startup::Outside{[this] { return directives_.stopping(); }, [this] { FinishIfOver(); }});
  startup_->Start();
}

void Generation::Adopt() {
  started_ = true;
  v1::World world;
  if (ReadMessage(File(kWorldFile), world).ok()) OnWorld(world);
  v1::RendezvousRecord rendezvous;
  const absl::Status read = ReadMessage(File(kRendezvousFile), rendezvous);
  // The readable part of a damaged file is used.
  LOG_IF(WARNING, !read.ok() && !absl::IsNotFound(read)) << read;
  rendezvous_.Restore(rendezvous);
  for (auto& [number, rank] : ranks_) {
    const std::optional<Address> master = rank.Adopt();
    if (master.has_value()) store_.Connect(*master);
  }
  store_.Adopt();
  if (!over() && launch_.node_rank() == 0) master_.HoldAgain();
  FinishIfOver();
}

void Generation::Stop(const v1::StopGeneration& stop) {
  if (over()) return store_.EndIfOver();
  const bool aborts = stop.abort() || directives_.aborting();
  v1::Directive directive;
  directive.set_kind(aborts ? v1::Directive::ABORT : v1::Directive::STOP);
  directive.set_reason(stop.reason());
  directive.set_message(stop.message());
  directive.set_leave_in_memory(stop.leave_in_memory() && !aborts);
  const bool is_new = directives_.Stop(directive);
  rendezvous_.EndAll(absl::AbortedError(absl::StrCat(stop.reason(), ": ", stop.message())));
  for (auto& [number, rank] : ranks_) rank.Stop(stop, /*is_repeated=*/!is_new);
  FinishIfOver();
}

void Generation::StopByWorker(const v1::StopGeneration& stop) {
  store_.EndByItself();
  Stop(stop);
}

void Generation::SetLeaseDeadline(int64_t boot_ms) {
  for (auto& [number, rank] : ranks_) rank.SetLeaseDeadline(boot_ms);
  store_.SetLeaseDeadline(boot_ms);
}

void Generation::Tick() {
  for (auto& [number, rank] : ranks_) rank.ReadProgress();
  store_.Tick();
}

void Generation::Inspect() {
  for (auto& [number, rank] : ranks_) rank.Inspect();
}

void Generation::FinishIfOver() {
  if (finished_ || !over()) return;
  finished_ = true;
  master_.Release();
  rendezvous_.EndAll(absl::AbortedError("the generation is over"));
  directives_.End();
  store_.EndIfOver();
  on_settled_();
}

void Generation::OnWorld(const v1::World& world) {
  world_ = world;
  const absl::Status written = WriteMessage(File(kWorldFile), world, false);
  // A later worker receives it from the coordinator again.
  LOG_IF(WARNING, !written.ok()) << written;
  rendezvous_.OnWorld();
}

void Generation::OnWaitNotice(const v1::WaitNotice& notice) {
  if (over()) return;
  const std::string line = absl::StrCat("muster: ", WaitText(notice.wait(), notice.timed_out()));
  rendezvous_.OnWaitNotice(notice.wait());
  for (auto& [number, rank] : ranks_) rank.Note(line);
}

void Generation::Join(const v1::JoinRequest& request, CallId id,
                      std::function<void(absl::StatusOr<v1::JoinResponse>)> done) {
  Rank& rank = ranks_.at(request.identity().rank());
  const absl::Status stored = rank.record().SetJoined(request);
  if (!stored.ok()) return done(stored);
  rendezvous_.Join(request.identity().rank(), id,
                   [this, local_rank = rank.placement().local_rank(),
                    done](const absl::StatusOr<std::string>& answer) {
                     if (!answer.ok()) return done(answer.status());
                     v1::JoinResponse response;
                     *response.mutable_world() = *world_;
                     *response.mutable_spec() = launch_.spec();
                     response.set_local_rank(local_rank);
                     done(std::move(response));
                   });
}

void Generation::CancelCall(CallId id) {
  rendezvous_.End(id, absl::CancelledError("the caller has cancelled"));
  directives_.Cancel(id);
}

}  // namespace muster::agent
