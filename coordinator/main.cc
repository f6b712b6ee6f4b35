// The muster-coordinator program: parses flags, opens the store, runs the coordinator and handles
// signals.
#include <glog/logging.h>
#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/process/exit_code.h"
#include "common/process/machine_id.h"
#include "common/process/systemd.h"
#include "common/security/local_token.h"
#include "common/security/private_file.h"
#include "common/status.h"
#include "coordinator/flags.h"
#include "coordinator/job_memory.h"
#include "coordinator/scheduler_config.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/store/data_dir.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/sqlite_store.h"

namespace muster {
namespace {

constexpr char kFiles[] = "files";

// The store and the data directory's lock, which keeps other coordinators out. The store is
// destroyed first.
struct Storage {
  std::unique_ptr<store::DataDir> data_dir;
  std::unique_ptr<store::Store> store;
};

absl::StatusOr<Storage> OpenStorage(const Flags& flags) {
  Storage storage;
  if (!flags.data_dir.empty()) {
    ASSIGN_OR_RETURN(storage.data_dir, store::DataDir::Acquire(flags.data_dir));
    RETURN_IF_ERROR(security::MakePrivateDirectory(storage.data_dir->PathTo(kFiles)));
  }
  if (flags.store == "memory") {
    storage.store = std::make_unique<store::MemoryStore>();
  } else {
    ASSIGN_OR_RETURN(storage.store,
                     store::SqliteStore::Open(storage.data_dir->PathTo("coordinator.sqlite")));
  }
  return storage;
}

// Returns the local token: kept in the data directory across restarts, or a new one when there is
// no data directory.
absl::StatusOr<std::string> LocalToken(const Storage& storage) {
  if (storage.data_dir == nullptr) return security::NewToken();
  return security::KeepToken(storage.data_dir->PathTo("token"));
}

int Fail(const absl::Status& status) {
  fprintf(stderr, "muster-coordinator: %s\n", std::string(status.message()).c_str());
  return absl::IsDataLoss(status) ? kExitFailure : kExitCannotCreate;
}

void Notify(const std::string& notify_socket, const char* state) {
  const absl::Status status = NotifySystemd(notify_socket, state);
  if (!status.ok()) LOG(WARNING) << status.message();
}

int Run(const Flags& flags) {
  // sigwait below receives these signals. They are blocked before any thread starts, so that no
  // thread handles one.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<Storage> storage = OpenStorage(flags);
  if (!storage.ok()) return Fail(storage.status());
  const absl::StatusOr<std::string> token = LocalToken(*storage);
  if (!token.ok()) return Fail(token.status());
  service::CoordinatorOptions options;
  options.listen = flags.listen;
  options.http = flags.http;
  if (storage->data_dir != nullptr) {
    options.files_dir = storage->data_dir->PathTo(kFiles);
    options.audit_log = storage->data_dir->PathTo("audit.log");
  }
  // Without an id, moves to another machine go unnoticed.
  const auto machine_id = FindMachineId(
      MachineIdFiles(),
      storage->data_dir != nullptr ? storage->data_dir->PathTo("machine-id") : "/dev/null");
  if (machine_id.ok()) options.machine_id = *machine_id;
  options.access.local_token = *token;
  options.access.tokens_file = flags.tokens;
  options.tls = flags.tls;
  options.ca_key = flags.ca_key;
  options.first_join_token = flags.first_join_token;
  options.certificate_validity = flags.certificate_validity;
  options.core.lease = flags.lease;
  options.core.job_lease = flags.job_lease;
  options.core.heartbeat_interval = flags.heartbeat_interval;
  options.core.keep_jobs = flags.keep_jobs;
  options.core.keep_jobs_for = flags.keep_jobs_for;
  options.core.checkpoint_dir = flags.checkpoint_dir;
  options.core.job_memory = flags.job_memory.value_or(DefaultJobMemory(UsableMemory()));
  if (!flags.scheduler_config.empty()) {
    const auto scheduler = ReadSchedulerConfig(flags.scheduler_config);
    if (!scheduler.ok()) {
      fprintf(stderr, "muster-coordinator: %s\n",
              std::string(scheduler.status().message()).c_str());
      return absl::IsNotFound(scheduler.status()) ? kExitNoInput : kExitUsage;
    }
    options.core.scheduler = *scheduler;
  }
  options.notify_socket = NotifySocket();
  options.watchdog_interval = WatchdogInterval();
  auto coordinator = service::Coordinator::Start(options, *storage->store);
  if (!coordinator.ok()) return Fail(coordinator.status());

  const std::string address = (*coordinator)->grpc_address().ToString();
  const auto published = security::PublishedToken::Publish(address, *token);
  if (!published.ok()) {
    LOG(WARNING) << "cannot publish the local token; pass --token-file to clients on this machine: "
                 << published.status().message();
  }

  printf("listening grpc=%s http=%s\n", address.c_str(),
         (*coordinator)->http_address().ToString().c_str());
  fflush(stdout);
  Notify(options.notify_socket, "READY=1");

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  // A second signal ends the process at once.
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  LOG(INFO) << strsignal(signal_number) << ": shutting down";
  Notify(options.notify_socket, "STOPPING=1");
  coordinator->reset();
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::Flags flags;
  const std::optional<int> status = muster::ParseFlags(argc, argv, flags);
  if (status.has_value()) return *status;
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  // Debian's Abseil is built with lock-cycle detection on every mutex, including gRPC's. With many
  // workers it takes a tenth of this program's CPU time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return muster::Run(flags);
}
