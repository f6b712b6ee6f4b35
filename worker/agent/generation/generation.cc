#include "worker/agent/generation/generation.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/text/wait_text.h"
#include "common/time/proto_time.h"
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

RankCalls::RankCalls(const GenerationContext& context, const v1::Launch& launch, RankSet& ranks)
    : context_(context),
      launch_(launch),
      ranks_(ranks),
      rendezvous_(launch.job_id(), launch.generation(), RanksOf(launch), MakeOutside()),
      directives_(static_cast<size_t>(launch.ranks_size())) {}

Rendezvous::Outside RankCalls::MakeOutside() {
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

std::string RankCalls::File(const char* name) const {
  return context_.directory->Generation(launch_.job_id(), launch_.generation()) + name;
}

void RankCalls::Restore() {
  v1::World world;
  if (ReadMessage(File(kWorldFile), world).ok()) OnWorld(world);
  v1::RendezvousRecord rendezvous;
  const absl::Status read = ReadMessage(File(kRendezvousFile), rendezvous);
  // The readable part of a damaged file is used.
  LOG_IF(WARNING, !read.ok() && !absl::IsNotFound(read)) << read;
  rendezvous_.Restore(rendezvous);
}

void RankCalls::Join(const v1::JoinRequest& request, CallId id,
                     std::function<void(absl::StatusOr<v1::JoinResponse>)> done) {
  Rank& rank = ranks_.all().at(request.identity().rank());
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

void RankCalls::Cancel(CallId id) {
  rendezvous_.End(id, absl::CancelledError("the caller has cancelled"));
  directives_.Cancel(id);
}

void RankCalls::OnWorld(const v1::World& world) {
  world_ = world;
  const absl::Status written = WriteMessage(File(kWorldFile), world, false);
  // A later worker receives it from the coordinator again.
  LOG_IF(WARNING, !written.ok()) << written;
  rendezvous_.OnWorld();
}

void RankCalls::OnWaitNotice(const v1::WaitNotice& notice) {
  if (ranks_.over()) return;
  const std::string line = absl::StrCat("muster: ", WaitText(notice.wait(), notice.timed_out()));
  rendezvous_.OnWaitNotice(notice.wait());
  for (auto& [number, rank] : ranks_.all()) rank.Note(line);
}

bool RankCalls::Stop(const v1::StopGeneration& stop) {
  const bool aborts = stop.abort() || directives_.aborting();
  v1::Directive directive;
  directive.set_kind(aborts ? v1::Directive::ABORT : v1::Directive::STOP);
  directive.set_reason(stop.reason());
  directive.set_message(stop.message());
  directive.set_leave_in_memory(stop.leave_in_memory() && !aborts);
  const bool is_new = directives_.Stop(directive);
  rendezvous_.EndAll(absl::AbortedError(absl::StrCat(stop.reason(), ": ", stop.message())));
  return is_new;
}

void RankCalls::End() {
  rendezvous_.EndAll(absl::AbortedError("the generation is over"));
  directives_.End();
}

Generation::Generation(const GenerationContext& context, v1::Launch launch, SecretValues secrets,
                       std::function<void()> on_settled)
    : launch_(std::move(launch)),
      on_settled_(std::move(on_settled)),
      ranks_(context, launch_,
             {/*on_change=*/nullptr,
              // The store may have disconnected the rank only just now.
              [this] { store_.Tick(); }, [this] { FinishIfOver(); }, [this] { on_settled_(); }}),
      calls_(context, launch_, ranks_),
      master_(context, launch_, calls_.rendezvous()),
      store_(context, launch_,
             {[this](const absl::Status& status) { startup_.OnStoreReady(status); },
              // Problems of no rank of this node are shown with the first.
              [this](std::optional<uint32_t> rank, const std::string& problem) {
                ranks_.all().at(rank.value_or(ranks_.all().begin()->first)).Warn(problem);
              },
              [this] { on_settled_(); }, [this] { return over(); }}),
      startup_(context, launch_, std::move(secrets), ranks_.all(), master_, store_,
               {[this] { return calls_.directives().stopping(); }, [this] { FinishIfOver(); }}) {}

v1::GenerationReport Generation::Inventory() {
  v1::GenerationReport report = ranks_.Inventory();
  for (v1::BarrierId& barrier : calls_.rendezvous().PassedBarriers()) {
    *report.add_passed_barriers() = std::move(barrier);
  }
  std::optional<v1::StoreWaits> waits = store_.Waits();
  if (waits.has_value()) *report.mutable_store_waits() = *std::move(waits);
  return report;
}

void Generation::ResendChanged() {
  ranks_.ResendChanged();
  store_.SendWaits();
  // Tails of ranks that exited without a session were not sent.
  for (const auto& [number, rank] : ranks_.all()) rank.SendLogTail();
}

void Generation::Start() {
  if (over()) return;
  started_ = true;
  for (auto& [number, rank] : ranks_.all()) rank.record().Begin();
  startup_.Start();
}

void Generation::Adopt() {
  started_ = true;
  calls_.Restore();
  for (auto& [number, rank] : ranks_.all()) {
    const std::optional<Address> master = rank.Adopt();
    if (master.has_value()) store_.Connect(*master);
  }
  store_.Adopt();
  if (!over() && launch_.node_rank() == 0) master_.HoldAgain();
  FinishIfOver();
}

void Generation::Stop(const v1::StopGeneration& stop) {
  if (over()) return store_.EndIfOver();
  const bool is_new = calls_.Stop(stop);
  for (auto& [number, rank] : ranks_.all()) rank.Stop(stop, /*is_repeated=*/!is_new);
  FinishIfOver();
}

void Generation::StopByWorker(absl::string_view reason, absl::string_view message,
                              std::optional<absl::Duration> grace, bool abort) {
  v1::StopGeneration stop;
  *stop.mutable_grace_period() =
      grace.has_value() ? ToProto(*grace) : launch_.spec().grace_period();
  stop.set_reason(std::string(reason));
  stop.set_message(std::string(message));
  stop.set_abort(abort);
  store_.EndByItself();
  Stop(stop);
}

void Generation::SetLeaseDeadline(int64_t boot_ms) {
  for (auto& [number, rank] : ranks_.all()) rank.SetLeaseDeadline(boot_ms);
  store_.SetLeaseDeadline(boot_ms);
}

void Generation::Tick() {
  for (auto& [number, rank] : ranks_.all()) rank.ReadProgress();
  store_.Tick();
}

void Generation::FinishIfOver() {
  if (finished_ || !over()) return;
  finished_ = true;
  master_.Release();
  calls_.End();
  store_.EndIfOver();
  on_settled_();
}

}  // namespace muster::agent
