#include "worker/agent/agent.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/http/address.h"
#include "common/limits.h"
#include "common/machine_id.h"
#include "common/network/network.h"
#include "common/now.h"
#include "common/random_id.h"
#include "common/status.h"
#include "common/time.h"
#include "common/version.h"
#include "glog/logging.h"
#include "spec/units.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/exec/transfer_server.h"
#include "worker/agent/files/file_placer.h"
#include "worker/agent/generation/devices.h"
#include "worker/agent/generation/environment.h"
#include "worker/agent/generation/generation_table.h"
#include "worker/agent/generation/secrets.h"
#include "worker/agent/job_user.h"
#include "worker/agent/lease/lease_lines.h"
#include "worker/agent/lease/leases.h"
#include "worker/agent/logs/log_server.h"
#include "worker/agent/metrics.h"
#include "worker/agent/rank/progress_board.h"
#include "worker/agent/rank/rank_service.h"
#include "worker/agent/self_test.h"
#include "worker/agent/session/membership.h"
#include "worker/agent/session/session.h"
#include "worker/agent/storage/data_directory.h"
#include "worker/agent/storage/memory_directory.h"
#include "worker/agent/storage/sweeper.h"
#include "worker/agent/user_files.h"
#include "worker/shim/cgroup.h"
#include "worker/shim/log/log_file.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);
// Time for the coordinator to stop ranks after this worker has reported that it is leaving.
constexpr absl::Duration kLeavePatience = absl::Seconds(2);

class AgentImpl final : public Agent {
 public:
  AgentImpl(const AgentOptions& options, std::function<void(const absl::Status&)> on_failure)
      : options_(options), on_failure_(std::move(on_failure)), incarnation_(RandomId()) {}

  absl::Status Start() {
    ASSIGN_OR_RETURN(devices_, Devices::Open(options_.devices));
    ASSIGN_OR_RETURN(job_users_,
                     JobUsers::Open(options_.job_user, options_.job_user_min_uid, options_.name));
    ASSIGN_OR_RETURN(directory_, DataDirectory::Open(options_.data_dir, job_users_.enabled()));
    RETURN_IF_ERROR(CheckSecretsFolder(options_.secrets_dir));
    if (job_users_.enabled()) {
      RETURN_IF_ERROR(CheckReachable(directory_->Cache(), job_users_.example()));
      LOG(INFO) << "ranks run as the Unix user " << options_.job_user;
    }
    sweeper_ = std::make_unique<Sweeper>(*directory_, OpenMemoryDirectory(), options_.keep_logs);
    machine_id_ = options_.machine_id;
    if (machine_id_.empty()) {
      ASSIGN_OR_RETURN(machine_id_, FindMachineId(MachineIdFiles(), directory_->MachineId()));
    }
    membership_ = std::make_unique<Membership>(directory_->Cluster());
    loop_ = std::make_unique<EventLoop>("agent");
    devices_->Start(*loop_, [this](v1::SlotReport report) {
      v1::WorkerMessage message;
      *message.mutable_slots() = std::move(report);
      Send(std::move(message));
    });
    ASSIGN_OR_RETURN(files_, FilePlacer::Open(options_.coordinator, options_.security,
                                              directory_->Files(), options_.file_cache_bytes));
    table_ = std::make_unique<GenerationTable>(MakeContext());
    self_tester_ = std::make_unique<SelfTester>(
        *loop_, [folder = directory_->path()] { return CheckHost(folder); });
    loop_->RunAndWait([this] {
      table_->Recover();
      // The coordinator counts as lost until the first Welcome.
      table_->OnCoordinatorLost();
      Tick(Now().steady);
    });
    RETURN_IF_ERROR(StartRankServer());
    RETURN_IF_ERROR(StartHttp());
    log_server_ = std::make_unique<LogServer>(
        LogServer::Options{options_.coordinator, options_.security, options_.keep_logs.Text(),
                           options_.rank_log_bytes,
                           [this](uint64_t transfer, const absl::Status& status) {
                             Refuse(&v1::WorkerMessage::mutable_log_unavailable, transfer, status);
                           }},
        *directory_);
    transfer_server_ = std::make_unique<TransferServer>(
        TransferServer::Options{options_.coordinator, options_.security, options_.name,
                                options_.shim_binary, job_users_,
                                [this](uint64_t transfer, const absl::Status& status) {
                                  Refuse(&v1::WorkerMessage::mutable_transfer_unavailable, transfer,
                                         status);
                                }},
        *directory_);
    loop_->RunAndWait([this] {
      logs_on_loop_ = log_server_.get();
      transfers_on_loop_ = transfer_server_.get();
    });
    ASSIGN_OR_RETURN(
        leases_,
        Leases::Start({options_.name, incarnation_, options_.coordinator, options_.security,
                       options_.peer_listen, directory_->Peers(), directory_->Promises(),
                       options_.trusts_refusals, membership_.get(), &lease_lines_},
                      *loop_, *table_,
                      [this](v1::WorkerMessage message) { Send(std::move(message)); }));
    loop_->RunAndWait([this] { leases_on_loop_ = leases_.get(); });
    // On the loop, which opens the session afterwards, so that the first messages can be answered.
    loop_->RunAndWait([this] {
      session_ = std::make_unique<Session>(options_.coordinator, *loop_, board_, SessionEvents(),
                                           options_.security);
      session_on_loop_ = session_.get();
    });
    return absl::OkStatus();
  }

  ~AgentImpl() override {
    if (loop_ == nullptr) return;
    loop_->RunAndWait([this] {
      session_on_loop_ = nullptr;
      leases_on_loop_ = nullptr;
      logs_on_loop_ = nullptr;
      transfers_on_loop_ = nullptr;
    });
    sweeper_->Drain();  // it may be restoring the ranks' socket
    // Before the components that its Hello describes: a session that breaks reopens by itself.
    session_.reset();
    http_.reset();
    rank_server_.reset();
    leases_.reset();
    log_server_.reset();
    transfer_server_.reset();
    sweeper_->Stop();
    loop_->RunAndWait([this] {
      membership_->Flush(Now().steady);
      if (table_ != nullptr) sweeper_->SweepMemory(table_->Held(), hands_over_);
      self_tester_.reset();
      table_.reset();
      devices_.reset();
    });
    files_.reset();  // its results are posted to the loop, where no generation waits for them
    loop_.reset();
  }

  void StopRanks(std::optional<absl::Duration> grace, std::function<void()> done) override {
    loop_->Post([this, grace, done = std::move(done)] {
      hands_over_ = false;
      const bool alone = !status_.session_up.load() || membership_->in_conflict();
      if (grace.has_value() || alone) return table_->StopAll(grace, done);
      leaving_ = true;
      SendLeaving();
      table_->AwaitEnd(kLeavePatience, done);
    });
  }

  const Address& http_address() const override { return http_->address(); }

 private:
  // Null if ranks leave no state in memory.
  std::unique_ptr<MemoryDirectory> OpenMemoryDirectory() const {
    if (options_.memory_dir.empty()) return nullptr;
    auto opened =
        MemoryDirectory::Open(options_.memory_dir, directory_->path(), job_users_.enabled());
    if (opened.ok()) return *std::move(opened);
    LOG(WARNING)
        << "ranks that lose a peer cannot keep their state in memory, so that their jobs continue "
           "from the last checkpoint: --memory-dir: "
        << opened.status().message();
    return nullptr;
  }

  GenerationContext MakeContext() {
    GenerationContext context;
    context.loop = loop_.get();
    context.directory = directory_.get();
    context.progress = &board_;
    context.job_users = job_users_;
    context.environment.inherited = InheritedVariables(environ, options_.inherit_env);
    context.environment.node_name = options_.name;
    context.environment.worker_socket = absl::StrCat("unix:", directory_->RankSocket());
    context.environment.cache_dir = directory_->Cache();
    context.environment.memory_dir = sweeper_->memory_path();
    context.environment.slots = devices_->slots();
    context.devices = devices_.get();
    context.network = NetworkIdentity();
    context.cgroup = shim::FindDelegatedCgroup();
    shim::RemoveAbandonedCgroups(context.cgroup);
    limits_unavailable_ = shim::EnableControllers(context.cgroup);
    context.limits_unavailable = limits_unavailable_;
    LOG_IF(WARNING, !limits_unavailable_.empty())
        << "cannot limit the memory and processes of ranks: " << limits_unavailable_;
    if (options_.pin_cpus) {
      context.cpus_of_slots = devices_->CpusOfSlots();
      LOG_IF(WARNING, context.cpus_of_slots.empty())
          << "not binding ranks to CPUs: there are fewer CPUs than slots";
    }
    context.rank_log_bytes = options_.rank_log_bytes;
    context.secrets_dir = options_.secrets_dir;
    context.shim_binary = options_.shim_binary;
    context.rank_binary = options_.rank_binary;
    context.store_binary = options_.store_binary;
    context.mpi_binary = options_.mpi_binary;
    context.place_files = [this](const v1::JobSpec& spec, std::vector<std::string> directories,
                                 const std::optional<JobUser>& user,
                                 std::function<void(const absl::Status&)> done) {
      files_->Place(spec, std::move(directories), user, [this, done](const absl::Status& status) {
        loop_->Post([done, status] { done(status); });
      });
    };
    context.lease_lines = &lease_lines_;
    context.lease_deadline_ms = [this](const v1::Launch& launch) {
      return leases_on_loop_ == nullptr ? 0 : leases_on_loop_->DeadlineMs(launch);
    };
    context.send = [this](v1::WorkerMessage message) { Send(std::move(message)); };
    context.on_rank_exited = [this](const std::string& job_id, uint64_t generation, uint32_t rank) {
      if (logs_on_loop_ != nullptr) logs_on_loop_->OnRankExited(job_id, generation, rank);
      if (transfers_on_loop_ != nullptr) {
        transfers_on_loop_->OnRankExited(job_id, generation, rank);
      }
    };
    return context;
  }

  absl::Status StartRankServer() {
    const std::string socket = directory_->RankSocket();
    RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(socket).parent_path().string()));
    ASSIGN_OR_RETURN(rank_server_,
                     RankServer::Start(socket, *loop_, *table_, job_users_.enabled()));
    return absl::OkStatus();
  }

  // Listens again if a job has removed or replaced the socket: no rank that starts could join
  // otherwise. Called on the sweeper's loop, because the server needs the agent's to end.
  void KeepRankSocket() {
    checks_socket_ = false;
    if (rank_server_ == nullptr || rank_server_->IsReachable()) return;
    LOG(ERROR)
        << "the ranks' socket " << directory_->RankSocket()
        << " was removed or replaced; listening again (with --job-user, jobs cannot remove it)";
    rank_server_.reset();
    const absl::Status started = StartRankServer();
    if (started.ok()) return;
    on_failure_(absl::FailedPreconditionError(absl::StrCat(
        "no rank can join, because the ranks' socket cannot be restored: ", started.message())));
  }

  absl::Status StartHttp() {
    std::map<std::string, uint32_t> slots;
    for (const v1::Slot& slot : devices_->slots()) ++slots[slot.kind()];
    ASSIGN_OR_RETURN(
        http_, StatusServer::Start(options_.http, status_,
                                   std::make_shared<Metrics>(
                                       board_, status_, std::move(slots),
                                       [table = table_.get()] { return table->SlotsInUse(); }),
                                   devices_->Metrics(),
                                   {"session",
                                    [this] {
                                      if (status_.session_up.load()) return absl::OkStatus();
                                      return absl::UnavailableError(
                                          absl::StrCat("no coordinator at ", options_.coordinator));
                                    }},
                                   {"cluster", [this] { return membership_->Check(); }}));
    return absl::OkStatus();
  }

  Session::Events SessionEvents() {
    Session::Events events;
    events.hello = [this] { return MakeHello(); };
    events.on_welcome = [this](const v1::Welcome& welcome) { OnWelcome(welcome); };
    events.on_message = [this](const v1::CoordinatorMessage& message) { OnMessage(message); };
    events.on_acknowledged = [this](const Session::Acknowledgement& acknowledged) {
      // Only the coordinator of the ranks extends their leases.
      if (membership_->in_conflict() || membership_->IsOutdated(acknowledged.term)) return;
      if (leases_on_loop_ != nullptr) {
        leases_on_loop_->OnAcknowledged(acknowledged.sent, acknowledged.address,
                                        acknowledged.peers);
      }
    };
    events.on_arrival = [this](const v1::CoordinatorMessage& message, SteadyTime sent) {
      if (message.has_stop())
        lease_lines_.Hold(message.stop().job_id(), message.stop().generation());
      if (message.has_heartbeat_ack() && extends_leases_) lease_lines_.OnAcknowledged(sent);
    };
    events.on_lost = [this](const absl::Status&) {
      extends_leases_ = false;
      lease_lines_.ReleaseAll();
      status_.session_up = false;
      if (logs_on_loop_ != nullptr) logs_on_loop_->CloseAll();
      if (transfers_on_loop_ != nullptr) transfers_on_loop_->CloseAll();
      table_->OnCoordinatorLost();
    };
    events.on_refused = [this](const absl::Status& status) {
      on_failure_(Annotate(status, "the coordinator rejected this worker; not retrying"));
    };
    events.retries_refused = [this](const absl::Status& status) {
      if (!table_->HasLiveRanks()) return false;
      membership_->OnRefused(status);
      NoteConflict();
      return true;
    };
    events.on_heartbeat_ack = [this](const v1::HeartbeatAck& ack) {
      membership_->OnHeartbeatAck(ack, Now().steady);
    };
    return events;
  }

  v1::Hello MakeHello() {
    v1::Hello hello;
    hello.set_protocol_version(kOldestProtocolVersion);
    hello.set_newest_protocol_version(kProtocolVersion);
    hello.set_software_version(kSoftwareVersion);
    hello.set_node_name(options_.name);
    hello.set_incarnation(incarnation_);
    hello.set_advertise_address(options_.advertise);
    Address metrics = http_->address();
    const bool any_interface = metrics.host == "0.0.0.0" || metrics.host == "::";
    hello.set_metrics_address(any_interface ? absl::StrCat(":", metrics.port) : metrics.ToString());
    hello.set_peer_address(leases_->peer_address());
    for (v1::Slot& slot : devices_->ReportSlots()) *hello.add_slots() = std::move(slot);
    hello.mutable_labels()->insert(options_.labels.begin(), options_.labels.end());
    hello.set_cpu_count(CpuCount());
    hello.set_memory_bytes(MemoryBytes());
    for (v1::GenerationReport& report : table_->Inventory()) {
      *hello.add_inventory() = std::move(report);
    }
    hello.set_machine_id(machine_id_);
    hello.set_tests_itself(true);
    hello.set_keeps_bans(true);
    hello.set_limits_unavailable(limits_unavailable_);
    hello.set_fence_set(leases_->fence_set());
    membership_->Describe(!hello.inventory().empty(), hello);
    return hello;
  }

  void OnWelcome(const v1::Welcome& welcome) {
    const std::string address =
        options_.advertise.empty() ? welcome.observed_address() : options_.advertise;
    LOG(INFO) << "session opened with the coordinator " << options_.coordinator << " (version "
              << welcome.software_version() << "), reached at " << address;
    status_.session_up = true;
    ++status_.sessions_total;
    membership_->OnWelcome(welcome, table_->HasLiveRanks());
    NoteConflict();
    if (membership_->in_conflict()) return;
    extends_leases_ = !membership_->IsOutdated(welcome.term());
    // Resolving an advertised name can be slow: do it only once.
    if (address != address_) interface_ = InterfaceOf(address);
    address_ = address;
    if (leases_on_loop_ != nullptr) leases_on_loop_->OnWelcome(welcome);
    table_->OnCoordinatorConnected(address_, interface_);
    table_->Resend();
    if (leaving_) SendLeaving();
  }

  void NoteConflict() { status_.in_conflict = membership_->in_conflict(); }

  void Send(v1::WorkerMessage message) {
    if (session_on_loop_ == nullptr || membership_->in_conflict()) return;
    session_on_loop_->Send(std::move(message));
  }

  void SendLeaving() {
    v1::WorkerMessage message;
    message.mutable_leaving();
    Send(std::move(message));
  }

  void SendJobRecords() {
    for (v1::JobRecords& records : table_->Records()) {
      v1::WorkerMessage message;
      *message.mutable_job_records() = std::move(records);
      session_on_loop_->Send(std::move(message));
    }
  }

  void OnMessage(const v1::CoordinatorMessage& message) {
    if (message.has_send_job_records()) return SendJobRecords();
    if (message.has_join_cluster()) {
      extends_leases_ = false;
      membership_->OnJoinCluster(message.join_cluster());
      return session_on_loop_->Reconnect();
    }
    if (membership_->in_conflict()) return;
    switch (message.kind_case()) {
      case v1::CoordinatorMessage::kLaunch:
        if (membership_->IsOutdated(message.launch().term())) return;
        return table_->OnMessage(message);
      case v1::CoordinatorMessage::kStop:
        table_->OnMessage(message);
        return lease_lines_.Release(message.stop().job_id(), message.stop().generation());
      case v1::CoordinatorMessage::kForget:
        table_->OnMessage(message);
        if (message.forget().delete_files()) DeleteFiles(message.forget().job_id());
        if (message.forget().job_ended() &&
            table_->NewestGeneration(message.forget().job_id()) == 0) {
          sweeper_->DiscardMemory(message.forget().job_id());
        }
        return;
      case v1::CoordinatorMessage::kWorld:
      case v1::CoordinatorMessage::kKeyValue:
      case v1::CoordinatorMessage::kReleaseBarrier:
      case v1::CoordinatorMessage::kWaitNotice:
      case v1::CoordinatorMessage::kInspect:
      case v1::CoordinatorMessage::kCheckpoint:
        return table_->OnMessage(message);
      case v1::CoordinatorMessage::kOpenLog:
        return OpenLog(message.open_log());
      case v1::CoordinatorMessage::kCloseLog:
        if (logs_on_loop_ != nullptr) logs_on_loop_->Close(message.close_log().transfer());
        return;
      case v1::CoordinatorMessage::kOpenExec:
        return OpenExec(message.open_exec());
      case v1::CoordinatorMessage::kOpenFiles:
        if (transfers_on_loop_ != nullptr) transfers_on_loop_->OpenFiles(message.open_files());
        return;
      case v1::CoordinatorMessage::kCloseTransfer:
        if (transfers_on_loop_ != nullptr) {
          transfers_on_loop_->Close(message.close_transfer().transfer());
        }
        return;
      case v1::CoordinatorMessage::kLeaseAnswer:
        if (leases_on_loop_ != nullptr) leases_on_loop_->OnAnswer(message.lease_answer());
        return;
      case v1::CoordinatorMessage::kFenceSet:
        if (leases_on_loop_ != nullptr) leases_on_loop_->OnFenceSet(message.fence_set());
        return;
      case v1::CoordinatorMessage::kBans:
        if (leases_on_loop_ != nullptr) leases_on_loop_->OnBans(message.bans());
        return;
      case v1::CoordinatorMessage::kSelfTest:
        return self_tester_->Run(message.self_test().id(), devices_->CheckGpus(),
                                 [this](v1::SelfTestReport report) {
                                   v1::WorkerMessage answer;
                                   *answer.mutable_self_test() = std::move(report);
                                   Send(std::move(answer));
                                 });
      case v1::CoordinatorMessage::kSendJobRecords:
      case v1::CoordinatorMessage::kJoinCluster:
      case v1::CoordinatorMessage::kWelcome:
      case v1::CoordinatorMessage::kHeartbeatAck:
      case v1::CoordinatorMessage::KIND_NOT_SET:
        return;
    }
  }

  void OpenLog(v1::OpenLog open) {
    if (logs_on_loop_ == nullptr) return;
    v1::ReadLogRequest& request = *open.mutable_request();
    if (request.generation() == 0) {
      request.set_generation(table_->NewestGeneration(request.job_id()));
    }
    Generation* const generation = table_->Find(request.job_id(), request.generation());
    logs_on_loop_->Open(open, generation != nullptr && generation->RankIsLive(request.rank()));
  }

  void OpenExec(const v1::OpenExec& open) {
    if (transfers_on_loop_ == nullptr) return;
    const Generation* const generation = table_->Find(open.job_id(), open.generation());
    transfers_on_loop_->OpenExec(
        open, generation != nullptr && generation->RankIsLive(open.start().rank()));
  }

  // Deletes the logs and directories of a job that was removed.
  void DeleteFiles(const std::string& job_id) {
    const absl::Status valid = CheckJobId(job_id);
    if (!valid.ok() || table_->NewestGeneration(job_id) != 0) {
      LOG(WARNING) << "not deleting the files of " << job_id << ": "
                   << (valid.ok() ? "it has ranks on this node" : valid.message());
      return;
    }
    sweeper_->DeleteFiles(job_id);
  }

  // Reports that a transfer cannot be opened.
  template <typename Refusal>
  void Refuse(Refusal* (v1::WorkerMessage::*mutable_refusal)(), uint64_t transfer,
              const absl::Status& status) {
    v1::WorkerMessage message;
    Refusal& refusal = *(message.*mutable_refusal)();
    refusal.set_transfer(transfer);
    refusal.set_code(status.raw_code());
    refusal.set_message(std::string(status.message()));
    loop_->Post([this, message = std::move(message)] { Send(message); });
  }

  void Tick(SteadyTime due) {
    const SteadyTime now = Now().steady;
    if (options_.on_tick != nullptr) options_.on_tick();
    status_.loop_lag_seconds = absl::ToDoubleSeconds(now - due);
    status_.loop_tick_ms = absl::ToInt64Milliseconds(now.since_start());
    if (table_ == nullptr) return;  // shutting down
    table_->Tick();
    if (leases_on_loop_ != nullptr) leases_on_loop_->Tick();
    devices_->Tick();
    // Without ranks there is no conflict.
    if (membership_->in_conflict() && status_.session_up.load() && !table_->HasLiveRanks()) {
      session_on_loop_->Reconnect();
    }
    if (session_on_loop_ != nullptr) {
      sweeper_->SweepIfDue(now, [this] { return table_->Held(); });
      if (!checks_socket_.exchange(true)) sweeper_->Post([this] { KeepRankSocket(); });
    }
    loop_->RunAfter(kTick, [this, due = now + kTick] { Tick(due); });
  }

  const AgentOptions options_;
  const std::function<void(const absl::Status&)> on_failure_;
  const uint64_t incarnation_;
  WorkerStatus status_;
  ProgressBoard board_;
  JobUsers job_users_;
  std::unique_ptr<DataDirectory> directory_;
  std::unique_ptr<Sweeper> sweeper_;
  bool hands_over_ = true;  // a later worker continues where this one ends
  std::string machine_id_;
  std::string limits_unavailable_;  // see Hello
  LeaseLines lease_lines_;
  // Whether the session's coordinator decides on the ranks of this node: only then do its
  // acknowledgements extend their leases.
  std::atomic<bool> extends_leases_ = false;
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Devices> devices_;
  std::unique_ptr<GenerationTable> table_;
  std::unique_ptr<SelfTester> self_tester_;
  std::unique_ptr<FilePlacer> files_;
  std::unique_ptr<RankServer> rank_server_;  // used on the sweeper's loop while that runs
  std::atomic<bool> checks_socket_ = false;
  std::unique_ptr<StatusServer> http_;
  std::unique_ptr<LogServer> log_server_;
  std::unique_ptr<TransferServer> transfer_server_;
  std::unique_ptr<Leases> leases_;
  std::unique_ptr<Session> session_;
  // Used on the loop only.
  bool leaving_ = false;
  std::string address_;
  std::string interface_;
  // The same objects for use on the loop; null before they exist and during shutdown.
  LogServer* logs_on_loop_ = nullptr;
  TransferServer* transfers_on_loop_ = nullptr;
  Leases* leases_on_loop_ = nullptr;
  Session* session_on_loop_ = nullptr;
};

}  // namespace

absl::Status CheckOptions(const AgentOptions& options) {
  std::vector<std::string> errors;
  if (!ParseAddress(options.coordinator).ok()) {
    errors.push_back(absl::StrCat("--coordinator: '", options.coordinator, "' is not HOST:PORT"));
  }
  bool plain = !options.name.empty() && options.name.size() <= limits::kNameLength;
  for (const char c : options.name) {
    plain = plain && (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                      absl::StrContains("-_.", absl::string_view(&c, 1)));
  }
  if (!plain) {
    errors.push_back(absl::StrCat("--name: '", options.name, "' is not a valid name; use 1 to ",
                                  limits::kNameLength, " letters, digits, '-', '_' and '.'"));
  }
  const std::string peers = CheckPeerListen(options.peer_listen, options.security.tls);
  if (!peers.empty()) errors.push_back(peers);
  if (options.data_dir.empty()) errors.push_back("--data-dir: must not be empty");
  if (options.rank_log_bytes > 0 && options.rank_log_bytes < shim::LogFile::kMinLimitBytes) {
    errors.push_back(absl::StrCat("--rank-log-bytes: ", spec::SizeText(options.rank_log_bytes),
                                  " is too small; set at least ",
                                  spec::SizeText(shim::LogFile::kMinLimitBytes),
                                  ", or 0 for no limit"));
  }
  const uint32_t slots = options.devices.slots.value_or(1);
  if (slots == 0 || slots > limits::kSlotsPerNode) {
    errors.push_back(absl::StrCat("--slots: must be from 1 to ", limits::kSlotsPerNode));
  }
  if (options.labels.size() > limits::kLabels) {
    errors.push_back(absl::StrCat("--labels: more than ", limits::kLabels, " labels"));
  }
  for (const auto& [key, value] : options.labels) {
    if (key.empty() || key.size() + value.size() > limits::kLabelBytes) {
      errors.push_back(absl::StrCat("--labels: '", key, "=", value,
                                    "' is not KEY=VALUE with at most ", limits::kLabelBytes,
                                    " bytes"));
    }
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
}

absl::StatusOr<std::unique_ptr<Agent>> Agent::Start(
    const AgentOptions& options, std::function<void(const absl::Status&)> on_failure) {
  RETURN_IF_ERROR(CheckOptions(options));
  auto agent = std::make_unique<AgentImpl>(options, std::move(on_failure));
  RETURN_IF_ERROR(agent->Start());
  return agent;
}

}  // namespace muster::agent
