#include "worker/agent/agent.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/http/address.h"
#include "common/limits.h"
#include "common/network/network.h"
#include "common/process/machine_id.h"
#include "common/random_id.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
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
#include "worker/agent/session/coordinator_client.h"
#include "worker/agent/session/membership.h"
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

// The fields of the Hello that are known before the session is opened.
v1::Hello DescribeWorker(const AgentOptions& options, const Address& http) {
  v1::Hello hello;
  hello.set_protocol_version(kOldestProtocolVersion);
  hello.set_newest_protocol_version(kProtocolVersion);
  hello.set_software_version(kSoftwareVersion);
  hello.set_node_name(options.name);
  hello.set_incarnation(RandomId());
  hello.set_advertise_address(options.advertise);
  const bool any_interface = http.host == "0.0.0.0" || http.host == "::";
  hello.set_metrics_address(any_interface ? absl::StrCat(":", http.port) : http.ToString());
  hello.mutable_labels()->insert(options.labels.begin(), options.labels.end());
  hello.set_tests_itself(true);
  hello.set_keeps_bans(true);
  return hello;
}

// Null if ranks leave no state in memory.
std::unique_ptr<MemoryDirectory> OpenMemoryDirectory(const AgentOptions& options,
                                                     const DataDirectory& directory,
                                                     bool has_job_users) {
  if (options.memory_dir.empty()) return nullptr;
  auto opened = MemoryDirectory::Open(options.memory_dir, directory.path(), has_job_users);
  if (opened.ok()) return *std::move(opened);
  LOG(WARNING)
      << "ranks that lose a peer cannot keep their state in memory, so that their jobs continue "
         "from the last checkpoint: --memory-dir: "
      << opened.status().message();
  return nullptr;
}

class AgentImpl final : public Agent {
 public:
  AgentImpl(const AgentOptions& options, std::function<void(const absl::Status&)> on_failure)
      : options_(options), on_failure_(std::move(on_failure)) {}

  absl::Status Start() {
    ASSIGN_OR_RETURN(devices_, Devices::Open(options_.devices));
    ASSIGN_OR_RETURN(const JobUsers job_users,
                     JobUsers::Open(options_.job_user, options_.job_user_min_uid, options_.name));
    ASSIGN_OR_RETURN(directory_, DataDirectory::Open(options_.data_dir, job_users.enabled()));
    RETURN_IF_ERROR(CheckSecretsFolder(options_.secrets_dir));
    if (job_users.enabled()) {
      RETURN_IF_ERROR(CheckReachable(directory_->Cache(), job_users.example()));
      LOG(INFO) << "ranks run as the Unix user " << options_.job_user;
    }
    sweeper_ = std::make_unique<Sweeper>(
        *directory_, OpenMemoryDirectory(options_, *directory_, job_users.enabled()),
        options_.keep_logs);
    std::string machine_id = options_.machine_id;
    if (machine_id.empty()) {
      ASSIGN_OR_RETURN(machine_id, FindMachineId(MachineIdFiles(), directory_->MachineId()));
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
    GenerationContext context = MakeContext(job_users);
    const std::string limits_unavailable = context.limits_unavailable;
    table_ = std::make_unique<GenerationTable>(std::move(context));
    loop_->RunAndWait([this] {
      table_->Recover();
      // The coordinator counts as lost until the first Welcome.
      table_->stops().OnCoordinatorLost();
      Tick(Now().steady);
    });
    ASSIGN_OR_RETURN(rank_server_, RankServer::Start(directory_->RankSocket(), *loop_, *table_,
                                                     job_users.enabled(), on_failure_));
    RETURN_IF_ERROR(StartHttp());
    v1::Hello hello = DescribeWorker(options_, http_->address());
    hello.set_machine_id(machine_id);
    hello.set_limits_unavailable(limits_unavailable);
    log_server_ = std::make_unique<LogServer>(
        LogServer::Options{options_.coordinator, options_.security, options_.keep_logs.Text(),
                           options_.rank_log_bytes,
                           [this](uint64_t transfer, const absl::Status& status) {
                             Refuse(&v1::WorkerMessage::mutable_log_unavailable, transfer, status);
                           }},
        *directory_);
    transfer_server_ = std::make_unique<TransferServer>(
        TransferServer::Options{
            options_.coordinator, options_.security, options_.name, options_.shim_binary, job_users,
            [this](uint64_t transfer, const absl::Status& status) {
              Refuse(&v1::WorkerMessage::mutable_transfer_unavailable, transfer, status);
            }},
        *directory_);
    ASSIGN_OR_RETURN(
        leases_,
        Leases::Start({options_.name, hello.incarnation(), options_.coordinator, options_.security,
                       options_.peer_listen, directory_->Peers(), directory_->Promises(),
                       options_.trusts_refusals, membership_.get(), &lease_lines_},
                      *loop_, *table_,
                      [this](v1::WorkerMessage message) { Send(std::move(message)); }));
    hello.set_peer_address(leases_->peer_address());
    loop_->RunAndWait([this, &hello] {
      auto self_tester = std::make_unique<SelfTester>(
          *loop_, [folder = directory_->path()] { return CheckHost(folder); });
      client_ = std::make_unique<CoordinatorClient>(CoordinatorClient::Context{
          options_.coordinator, options_.security, std::move(hello), *loop_, board_, status_,
          *membership_, lease_lines_, *leases_, *devices_, *table_, *sweeper_, *log_server_,
          *transfer_server_, std::move(self_tester), on_failure_});
      client_on_loop_ = client_.get();
    });
    return absl::OkStatus();
  }

  ~AgentImpl() override {
    if (loop_ == nullptr) return;
    loop_->RunAndWait([this] {
      if (client_on_loop_ != nullptr) client_on_loop_->BeginShutdown();
      client_on_loop_ = nullptr;
    });
    sweeper_->Drain();  // it may be restoring the ranks' socket
    // Before the components that its Hello describes: a session that breaks reopens by itself.
    client_.reset();
    http_.reset();
    rank_server_.reset();
    leases_.reset();
    log_server_.reset();
    transfer_server_.reset();
    sweeper_->Stop();
    loop_->RunAndWait([this] {
      membership_->Flush(Now().steady);
      if (table_ != nullptr) sweeper_->SweepMemory(table_->Held(), hands_over_);
      table_.reset();
      devices_.reset();
    });
    files_.reset();  // its results are posted to the loop, where no generation waits for them
    loop_.reset();
  }

  void StopRanks(std::optional<absl::Duration> grace, std::function<void()> done) override {
    loop_->Post([this, grace, done = std::move(done)] {
      hands_over_ = false;
      const bool alone =
          client_on_loop_ == nullptr || !status_.session_up.load() || membership_->in_conflict();
      if (grace.has_value() || alone) return table_->stops().StopAll(grace, done);
      client_on_loop_->Leave();
      table_->stops().AwaitEnd(kLeavePatience, done);
    });
  }

  const Address& http_address() const override { return http_->address(); }

 private:
  GenerationContext MakeContext(const JobUsers& job_users) {
    GenerationContext context;
    context.loop = loop_.get();
    context.directory = directory_.get();
    context.progress = &board_;
    context.job_users = job_users;
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
    context.limits_unavailable = shim::EnableControllers(context.cgroup);
    LOG_IF(WARNING, !context.limits_unavailable.empty())
        << "cannot limit the memory and processes of ranks: " << context.limits_unavailable;
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
      return client_on_loop_ == nullptr ? 0 : leases_->DeadlineMs(launch);
    };
    context.send = [this](v1::WorkerMessage message) { Send(std::move(message)); };
    context.on_rank_exited = [this](const std::string& job_id, uint64_t generation, uint32_t rank) {
      if (client_on_loop_ == nullptr) return;
      log_server_->OnRankExited(job_id, generation, rank);
      transfer_server_->OnRankExited(job_id, generation, rank);
    };
    return context;
  }

  absl::Status StartHttp() {
    std::map<std::string, uint32_t> slots;
    for (const v1::Slot& slot : devices_->slots()) ++slots[slot.kind()];
    ASSIGN_OR_RETURN(
        http_, StatusServer::Start(options_.http, status_,
                                   std::make_shared<Metrics>(board_, status_, std::move(slots)),
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

  void Send(v1::WorkerMessage message) {
    if (client_on_loop_ != nullptr) client_on_loop_->Send(std::move(message));
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
    if (client_on_loop_ != nullptr) leases_->Tick();
    devices_->Tick();
    if (client_on_loop_ != nullptr) {
      client_on_loop_->Tick();
      sweeper_->SweepIfDue(now, [this] { return table_->Held(); });
      rank_server_->CheckOn(*sweeper_);
    }
    loop_->RunAfter(kTick, [this, due = now + kTick] { Tick(due); });
  }

  const AgentOptions options_;
  const std::function<void(const absl::Status&)> on_failure_;
  WorkerStatus status_;
  ProgressBoard board_;
  std::unique_ptr<DataDirectory> directory_;
  std::unique_ptr<Sweeper> sweeper_;
  bool hands_over_ = true;  // a later worker continues where this one ends
  LeaseLines lease_lines_;
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Devices> devices_;
  std::unique_ptr<GenerationTable> table_;
  std::unique_ptr<FilePlacer> files_;
  std::unique_ptr<RankServer> rank_server_;
  std::unique_ptr<StatusServer> http_;
  std::unique_ptr<LogServer> log_server_;
  std::unique_ptr<TransferServer> transfer_server_;
  std::unique_ptr<Leases> leases_;
  std::unique_ptr<CoordinatorClient> client_;
  // client_ for use on the loop; null before it exists and during shutdown. While it is not null,
  // leases_, log_server_ and transfer_server_ can be used on the loop, too.
  CoordinatorClient* client_on_loop_ = nullptr;
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
