#include "worker/agent/generation/generation.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/now.h"
#include "common/proto_time.h"
#include "common/random_id.h"
#include "common/report_bounds.h"
#include "common/status.h"
#include "common/wait_text.h"
#include "glog/logging.h"
#include "spec/cut_off.h"
#include "spec/hosted_store.h"
#include "worker/agent/generation/exit_info.h"
#include "worker/agent/generation/launcher.h"
#include "worker/agent/generation/rank_launch.h"
#include "worker/agent/generation/rank_token.h"
#include "worker/shim/fields.h"

namespace muster::agent {
namespace {

constexpr char kWorldFile[] = "/world.pb";
constexpr char kRendezvousFile[] = "/rendezvous.pb";
constexpr char kMasterFile[] = "/master";
constexpr char kReportFile[] = "/report.pb";
// The id of the worker's own call; ids of ranks' calls start at 1.
constexpr CallId kOwnCall = 0;

std::vector<uint32_t> SlotsOf(const v1::RankPlacement& placement) {
  return {placement.slots().begin(), placement.slots().end()};
}

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
      self_(std::make_shared<Generation*>(this)) {
  for (const v1::RankPlacement& placement : launch_.ranks()) {
    RankState& rank = ranks_[placement.rank()];
    rank.placement = placement;
    rank.report.set_rank(placement.rank());
    rank.report.set_phase(v1::PLACED);
    if (placement.rank() == 0 && !launch_.spec().has_train()) {
      *rank.report.mutable_checkpoint() = CommandCheckpoint(context_, launch_);
    }
  }
  rendezvous_ = std::make_unique<Rendezvous>(
      job_id(), number(), RanksOf(launch_),
      Rendezvous::Outside{context_.send,
                          [this](absl::Duration delay, std::function<void()> f) {
                            context_.loop->RunAfter(delay, std::move(f));
                          },
                          [this](const v1::RendezvousRecord& record, bool replace) {
                            StoreRendezvous(record, replace);
                          }});
}

Generation::~Generation() {
  *self_ = nullptr;
  for (auto& [id, watcher] : watchers_)
    watcher.done(absl::UnavailableError("the worker is shutting down"));
}

bool Generation::over() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const auto& entry) { return entry.second.report.phase() == v1::EXITED; });
}

bool Generation::RankIsLive(uint32_t rank) const {
  const auto it = ranks_.find(rank);
  return it != ranks_.end() && it->second.report.phase() != v1::EXITED;
}

std::vector<uint32_t> Generation::SlotsInUse() const {
  std::vector<uint32_t> slots;
  for (const auto& [number, rank] : ranks_) {
    if (!started_ || rank.report.phase() == v1::EXITED) continue;
    slots.insert(slots.end(), rank.placement.slots().begin(), rank.placement.slots().end());
  }
  return slots;
}

v1::GenerationReport Generation::Inventory() {
  changed_since_hello_.clear();
  v1::GenerationReport report;
  report.set_job_id(job_id());
  report.set_generation(number());
  for (const auto& [number, rank] : ranks_) *report.add_ranks() = ReportOf(rank);
  for (v1::BarrierId& barrier : rendezvous_->PassedBarriers()) {
    *report.add_passed_barriers() = std::move(barrier);
  }
  if (store_ != nullptr) *report.mutable_store_waits() = store_->Waits();
  return report;
}

std::string Generation::RankDirectory(uint32_t rank) const {
  return context_.directory->Rank(job_id(), number(), rank);
}

std::string Generation::File(const char* name) const {
  return context_.directory->Generation(job_id(), number()) + name;
}

void Generation::Start() {
  if (over()) return;
  started_ = true;
  const absl::Status made = MakeFiles();
  if (!made.ok()) return StartRanks(made);
  if (launch_.spec().has_train()) return StartRanks(MasterEndpoint());
  if (launch_.node_rank() != 0) return AwaitMaster();
  const absl::StatusOr<MasterEndpoint> master = HoldMaster();
  if (master.ok() && spec::RequestsHostedStore(launch_.spec())) return StartStore(*master);
  if (master.ok()) PublishMaster(EncodeMasterEndpoint(*master));
  StartRanks(master);
}

absl::StatusOr<MasterEndpoint> Generation::HoldMaster() {
  ASSIGN_OR_RETURN(master_port_, HeldPort::Hold(0));
  MasterEndpoint endpoint;
  endpoint.address = {context_.environment.address, master_port_->port()};
  endpoint.network = context_.network;
  const std::string text = EncodeMasterEndpoint(endpoint);
  if (!shim::WriteFileAtomically(File(kMasterFile), text, false)) {
    return ErrnoStatus(errno, absl::StrCat("write ", File(kMasterFile)));
  }
  return endpoint;
}

void Generation::PublishMaster(const std::string& endpoint) {
  if (launch_.node_count() < 2) return;
  rendezvous_->Put(launch_.ranks(0).rank(), kMasterKey, endpoint, kOwnCall,
                   [job = job_id()](const absl::StatusOr<std::string>& answer) {
                     LOG_IF(WARNING, !answer.ok() && !absl::IsAborted(answer.status()))
                         << job << ": cannot publish the master endpoint: " << answer.status();
                   });
}

void Generation::AwaitMaster() {
  rendezvous_->Get(launch_.ranks(0).rank(), kMasterKey, kOwnCall,
                   [this, self = self_](const absl::StatusOr<std::string>& text) {
                     // The generation was stopped or destroyed meanwhile.
                     if (*self == nullptr || directive_.has_value()) return;
                     const absl::StatusOr<MasterEndpoint> master = MasterAt(text);
                     if (master.ok()) LocateRanksFor(master->address);
                     StartRanks(master);
                   });
}

absl::StatusOr<MasterEndpoint> Generation::MasterAt(const absl::StatusOr<std::string>& text) const {
  if (!text.ok()) return text.status();
  ASSIGN_OR_RETURN(MasterEndpoint endpoint, DecodeMasterEndpoint(*text));
  RETURN_IF_ERROR(CheckReachable(endpoint, context_.environment.address, context_.network));
  return endpoint;
}

void Generation::HoldMasterAgain() {
  const std::string text = shim::ReadFile(File(kMasterFile)).value_or("");
  const absl::StatusOr<MasterEndpoint> endpoint = DecodeMasterEndpoint(text);
  if (!endpoint.ok()) return;
  // The earlier worker may have ended before the coordinator received it.
  PublishMaster(text);
  auto port = HeldPort::Hold(endpoint->address.port);
  // Usually fails because the job's program already listens on it.
  if (port.ok()) master_port_ = *std::move(port);
}

void Generation::StartRanks(const absl::StatusOr<MasterEndpoint>& master) {
  if (!master.ok() || launch_.spec().files().empty()) return LaunchRanks(master);
  std::vector<std::string> directories;
  for (const auto& [number, rank] : ranks_) {
    directories.push_back(context_.directory->Work(job_id(), number));
  }
  context_.place_files(launch_.spec(), std::move(directories), user_,
                       [this, self = self_, master = *master](const absl::Status& placed) {
                         // The generation was stopped or destroyed meanwhile.
                         if (*self == nullptr || directive_.has_value()) return;
                         if (!placed.ok()) return LaunchRanks(placed);
                         LaunchRanks(master);
                       });
}

void Generation::LaunchRanks(const absl::StatusOr<MasterEndpoint>& master) {
  const absl::StatusOr<std::vector<std::string>> secrets =
      ResolveSecrets(launch_, std::exchange(secrets_, {}), context_.secrets_dir);
  for (auto& [number, rank] : ranks_) {
    if (rank.report.phase() == v1::EXITED) continue;
    const absl::Status status = !master.ok()    ? master.status()
                                : !secrets.ok() ? secrets.status()
                                                : StartRank(rank, *master, *secrets);
    if (status.ok()) continue;
    LOG(ERROR) << job_id() << " rank " << number << ": " << status;
    SetExited(rank, LaunchFailure(status));
  }
  FinishIfOver();
}

absl::Status Generation::StartRank(RankState& rank, const MasterEndpoint& master,
                                   const std::vector<std::string>& secrets) {
  const uint32_t number = rank.placement.rank();
  rank.token = RandomHexId(128);
  const shim::Instructions instructions =
      MakeInstructions(context_, launch_, rank.placement, rank.token, master.address, user_);
  RETURN_IF_ERROR(MakeLauncher(context_, launch_)->CheckNode(rank.placement, instructions));
  RETURN_IF_ERROR(CheckTracked(context_, instructions));
  AddWarning(UnenforcedLimits(context_, launch_.spec().resources()), rank.report);
  if (launch_.spec().workdir().empty() && !user_.has_value()) {
    RETURN_IF_ERROR(MakeDirectories(instructions.workdir));
  }
  OpenReports(instructions, rank);
  const std::vector<uint32_t> slots = SlotsOf(rank.placement);
  context_.devices->Occupy(slots, /*adopted=*/false);
  auto shim = ShimProcess::Start(*context_.loop, context_.shim_binary, RankDirectory(number),
                                 instructions, SecretsFor(instructions, secrets), EventsOf(number));
  if (!shim.ok()) {
    context_.devices->Release(slots, [] {});
    return shim.status();
  }
  rank.shim = *std::move(shim);
  KeepLease(rank.shim->line());
  return absl::OkStatus();
}

void Generation::KeepLease(const std::shared_ptr<ShimLine>& line) const {
  if (!launch_.has_job_lease() || spec::ContinuesWhenCutOff(launch_.spec())) return;
  context_.lease_lines->Add(job_id(), number(), job_lease(), line);
}

void Generation::Adopt() {
  started_ = true;
  v1::World world;
  if (ReadMessage(File(kWorldFile), world).ok()) OnWorld(world);
  v1::RendezvousRecord rendezvous;
  const absl::Status read = ReadMessage(File(kRendezvousFile), rendezvous);
  // What could be read of a damaged file is used.
  LOG_IF(WARNING, !read.ok() && !absl::IsNotFound(read)) << read;
  rendezvous_->Restore(rendezvous);
  for (auto& [number, rank] : ranks_) {
    v1::RankReport report;
    const bool readable = ReadMessage(RankDirectory(number) + kReportFile, report).ok();
    if (readable && report.rank() == number) rank.report = report;
    // An earlier version may have stored more than it may send.
    Clamp(rank.report);
    if (rank.report.phase() == v1::EXITED) continue;  // it never had a shim
    const auto text =
        shim::ReadFile(absl::StrCat(RankDirectory(number), "/", shim::kInstructionsFile));
    std::optional<shim::Instructions> instructions;
    if (text.has_value()) instructions = shim::DecodeInstructions(*text);
    if (!instructions.has_value()) {
      SetExited(rank,
                LaunchFailure(absl::AbortedError("the worker ended before starting the rank")));
      continue;
    }
    rank.token = TokenIn(*instructions);
    OpenReports(*instructions, rank);
    if (locator_ == nullptr) LocateRanksFor(MasterIn(*instructions));
    context_.devices->Occupy(SlotsOf(rank.placement), /*adopted=*/true);
    rank.shim =
        ShimProcess::Adopt(*context_.loop, RankDirectory(number), *instructions, EventsOf(number));
    KeepLease(rank.shim->line());
  }
  if (launch_.node_rank() == 0) store_ = HostedStore::Adopt(context_, launch_, StoreEvents());
  if (store_ != nullptr && !over()) KeepLease(store_->line());
  if (!over() && launch_.node_rank() == 0) HoldMasterAgain();
  FinishIfOver();
}

void Generation::OnStarted(RankState& rank, int64_t pid) {
  rank.report.set_pid(pid);
  rank.report.set_phase(std::max(rank.report.phase(), v1::STARTED));
  Changed(rank);
}

void Generation::OnEnded(RankState& rank, const std::optional<shim::ExitRecord>& record) {
  rank.shim.reset();
  rank.ended = true;
  // The store may have disconnected the rank only just now.
  TickStore();
  if (record.has_value() && record->lost_output.bytes > 0) {
    LOG(WARNING) << job_id() << " rank " << rank.report.rank() << ": " << record->lost_output.bytes
                 << " bytes of its logs could not be written: " << record->lost_output.reason;
    OnLostOutput(rank, record->lost_output);
  }
  v1::ExitInfo exit = ToExitInfo(record);
  if (!launch_.spec().has_train()) {
    AddProgramError(rank.error_file, exit, rank.uid);
  }
  if (rank.progress != nullptr) {
    const std::optional<v1::Progress> last = rank.progress->Read(Now());
    if (last.has_value()) *rank.report.mutable_progress() = *last;
    AddWarning(rank.progress->TakeWarning(), rank.report);
  }
  // Release the slots first: the coordinator may place another rank there as soon as it receives
  // the exit.
  context_.devices->Release(SlotsOf(rank.placement),
                            [this, self = self_, number = rank.report.rank(), exit] {
                              if (*self != nullptr) OnDevicesSeen(ranks_[number], exit);
                            });
}

void Generation::OnDevicesSeen(RankState& rank, v1::ExitInfo exit) {
  AddDeviceEvidence(context_.devices->Evidence(SlotsOf(rank.placement)), exit);
  SetExited(rank, std::move(exit));
  FinishIfOver();
}

void Generation::SetExited(RankState& rank, v1::ExitInfo exit) {
  if (!exit.has_failure() && rank.report.has_failure()) {
    *exit.mutable_failure() = rank.report.failure();
  }
  *rank.report.mutable_exit() = std::move(exit);
  rank.report.set_phase(v1::EXITED);
  Clamp(rank.report);
  rank.report.clear_unkillable();
  rank.report.clear_memory_bytes();
  if (started_) {
    // Best effort: on failure, the next worker reads the shim's record.
    const absl::Status persisted = Persist(rank, false);
    LOG_IF(WARNING, !persisted.ok()) << persisted;
  }
  Changed(rank);
  const uint32_t number = rank.report.rank();
  context_.progress->MarkExited(job_id(), this->number(), number, Now().steady);
  context_.on_rank_exited(job_id(), this->number(), number);
}

void Generation::FinishIfOver() {
  if (finished_ || !over()) return;
  finished_ = true;
  master_port_.reset();
  rendezvous_->EndAll(absl::AbortedError("the generation is over"));
  auto watchers = std::move(watchers_);
  watchers_.clear();
  for (auto& [id, watcher] : watchers) watcher.done(absl::OkStatus());
  EndStoreIfOver();
  on_settled_();
}

void Generation::OnWorld(const v1::World& world) {
  world_ = world;
  const absl::Status written = WriteMessage(File(kWorldFile), world, false);
  // A later worker receives it from the coordinator again.
  LOG_IF(WARNING, !written.ok()) << written;
  rendezvous_->OnWorld();
}

void Generation::OnWaitNotice(const v1::WaitNotice& notice) {
  if (over()) return;
  const std::string line = absl::StrCat("muster: ", WaitText(notice.wait(), notice.timed_out()));
  rendezvous_->OnWaitNotice(notice.wait());
  for (auto& [number, rank] : ranks_) {
    if (rank.shim != nullptr) rank.shim->Note(line);
  }
}

void Generation::StoreRendezvous(const v1::RendezvousRecord& record, bool replace) const {
  // Without fsync: ranks do not outlive a crash of the machine.
  const absl::Status stored = replace ? WriteMessage(File(kRendezvousFile), record, false)
                                      : AppendMessage(File(kRendezvousFile), record);
  // Best effort: it counts only if both this worker and the coordinator are replaced.
  LOG_IF(WARNING, !stored.ok()) << stored;
}

bool Generation::TokenMatches(uint32_t rank, const std::string& token) const {
  const auto it = ranks_.find(rank);
  return it != ranks_.end() && SameToken(it->second.token, token);
}

void Generation::Join(const v1::JoinRequest& request, CallId id,
                      std::function<void(absl::StatusOr<v1::JoinResponse>)> done) {
  RankState& rank = ranks_[request.identity().rank()];
  *rank.report.mutable_join() = request.info();
  Clamp(rank.report);
  if (rank.report.phase() < v1::JOINED) {
    rank.report.set_phase(v1::JOINED);
    rank.report.set_pid(request.pid());
    const absl::Status persisted = Persist(rank, false);
    if (!persisted.ok()) return done(persisted);
  }
  Changed(rank);
  const uint32_t local_rank = rank.placement.local_rank();
  rendezvous_->Join(request.identity().rank(), id,
                    [this, local_rank, done](const absl::StatusOr<std::string>& answer) {
                      if (!answer.ok()) return done(answer.status());
                      v1::JoinResponse response;
                      *response.mutable_world() = *world_;
                      *response.mutable_spec() = launch_.spec();
                      response.set_local_rank(local_rank);
                      done(std::move(response));
                    });
}

void Generation::Watch(uint32_t rank, CallId id,
                       std::function<void(const v1::Directive&)> on_directive,
                       std::function<void(absl::Status)> done) {
  if (directive_.has_value()) on_directive(*directive_);
  if (finished_) return done(absl::OkStatus());
  if (watchers_.size() >= 4 * ranks_.size()) {
    return done(absl::ResourceExhaustedError("too many watches in one generation"));
  }
  watchers_.emplace(id, Watcher{rank, std::move(on_directive), std::move(done)});
}

void Generation::CancelCall(CallId id) {
  rendezvous_->End(id, absl::CancelledError("the caller has cancelled"));
  const auto it = watchers_.find(id);
  if (it == watchers_.end()) return;
  const auto done = std::move(it->second.done);
  watchers_.erase(it);
  done(absl::CancelledError("the caller has cancelled"));
}

absl::Status Generation::Persist(const RankState& rank, bool sync) const {
  return WriteMessage(RankDirectory(rank.report.rank()) + kReportFile, rank.report, sync);
}

void Generation::Changed(const RankState& rank) {
  context_.progress->Update(job_id(), number(), rank.report);
  if (changed_.empty()) {
    context_.loop->Post([self = self_] {
      if (*self != nullptr) (*self)->SendChanged();
    });
  }
  changed_.insert(rank.report.rank());
  changed_since_hello_.insert(rank.report.rank());
}

void Generation::ResendChanged() {
  changed_.insert(changed_since_hello_.begin(), changed_since_hello_.end());
  if (!changed_.empty()) SendChanged();
  if (store_ != nullptr) SendStoreWaits();
  // Tails of ranks that exited without a session were not sent.
  for (const auto& [number, rank] : ranks_) SendLogTail(rank);
}

void Generation::SendChanged() {
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_report();
  report.set_job_id(job_id());
  report.set_generation(number());
  for (const uint32_t rank : changed_) *report.add_ranks() = ReportOf(ranks_[rank]);
  context_.send(std::move(message));
  for (const uint32_t rank : std::exchange(changed_, {})) SendLogTail(ranks_[rank]);
}

}  // namespace muster::agent
