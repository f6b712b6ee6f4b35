// muster-worker: the daemon that runs on each node.
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/process/exit_code.h"
#include "common/process/find_program.h"
#include "common/process/program_folder.h"
#include "common/process/systemd.h"
#include "common/time/now.h"
#include "glog/logging.h"
#include "worker/agent/agent.h"
#include "worker/certificate_renewer.h"
#include "worker/flags.h"

namespace {

using muster::agent::Agent;
using muster::agent::AgentOptions;

using muster::kExitCannotCreate;
using muster::kExitFailure;
using muster::kExitNotAllowed;
using muster::kExitUsage;

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// A missing program is reported only when a rank is launched, because a node may run only command
// jobs.
std::string Installed(const char* folder, const char* name) {
  return muster::FindProgram("", folder, name, "")
      .value_or((muster::ProgramFolder() / name).string());
}

// Waits until SIGTERM or SIGINT has arrived and every rank has ended, until SIGUSR2 has arrived, or
// until the agent has failed.
class Lifetime {
 public:
  // Must be created before any thread, so that all threads block the signals and Wait receives
  // them.
  Lifetime() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signals_ = signalfd(-1, &signals, SFD_CLOEXEC);
    event_ = eventfd(0, EFD_CLOEXEC);
  }

  // Thread-safe.
  void End(uint64_t status_plus_one) {
    [[maybe_unused]] const ssize_t n = write(event_, &status_plus_one, sizeof(status_plus_one));
  }

  int Wait(Agent& agent) {
    bool signalled = false;
    while (true) {
      pollfd fds[2] = {{signals_, POLLIN, 0}, {event_, POLLIN, 0}};
      if (poll(fds, 2, -1) < 0) continue;
      uint64_t status = 0;
      if ((fds[1].revents & POLLIN) != 0 && read(event_, &status, sizeof(status)) > 0) {
        return static_cast<int>(status) - 1;
      }
      signalfd_siginfo info = {};
      if ((fds[0].revents & POLLIN) == 0 || read(signals_, &info, sizeof(info)) <= 0) continue;
      if (info.ssi_signo == SIGUSR2) {
        LOG(INFO) << "handing over: the ranks continue, and the next worker with this data "
                     "directory adopts them";
        return 0;
      }
      LOG(INFO) << "stopping the ranks, then this worker" << (signalled ? ", without grace" : "");
      // A second signal ends the grace period.
      std::optional<absl::Duration> grace;
      if (signalled) grace = absl::ZeroDuration();
      signalled = true;
      agent.StopRanks(grace, [this] { End(1); });
    }
  }

 private:
  int signals_ = -1;
  int event_ = -1;
};

// Reports to systemd, if it runs this worker.
class Supervisor {
 public:
  Supervisor() : socket_(muster::NotifySocket()), interval_(muster::WatchdogInterval()) {
    // Ranks must not report in the worker's name.
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }

  void Notify(const char* state) const {
    const absl::Status status = muster::NotifySystemd(socket_, state);
    LOG_IF(WARNING, !status.ok()) << status.message();
  }
  // Feeds the watchdog. Call it on one thread.
  void OnTick() {
    if (interval_ == absl::InfiniteDuration() || muster::SteadyNow() < next_) return;
    next_ = muster::SteadyNow() + interval_;
    Notify("WATCHDOG=1");
  }

 private:
  const std::string socket_;
  const absl::Duration interval_;
  muster::SteadyTime next_;
};

}  // namespace

int main(int argc, char** argv) {
  // Report a closed peer as an error of the write instead of a signal. Child processes get the
  // default handler back.
  std::signal(SIGPIPE, SIG_IGN);
  muster::WorkerFlags flags;
  AgentOptions& options = flags.agent;
  options.name = HostName();
  options.shim_binary = Installed("worker", "muster-shim");
  options.rank_binary = Installed("trainer", "muster-rank");
  options.store_binary = Installed("worker", "muster-c10d-store");
  options.mpi_binary = Installed("worker", "muster-mpi");
  if (const int code = muster::ParseFlags(argc, argv, flags); code >= 0) return code;
  if (const char* token = std::getenv("MUSTER_TOKEN"); token != nullptr) {
    options.security.token = token;
    // Ranks must not inherit it.
    unsetenv("MUSTER_TOKEN");
  }
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) {
    options.devices.visible = visible;
  }
  google::InitGoogleLogging(argv[0]);
  // Debian's Abseil is built with deadlock detection, which checks every mutex, including gRPC's.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  FLAGS_logtostderr = true;

  if (const absl::Status usable = CheckClientSecurity(options.security); !usable.ok()) {
    std::fprintf(stderr, "muster-worker: %s\n", std::string(usable.message()).c_str());
    return absl::IsInvalidArgument(usable) ? kExitUsage : kExitNotAllowed;
  }

  options.security.has_node_certificate = muster::HasNodeCertificate(options.security.tls);

  Supervisor supervisor;
  options.on_tick = [&supervisor] { supervisor.OnTick(); };
  Lifetime lifetime;
  auto agent = Agent::Start(options, [&lifetime](const absl::Status& status) {
    LOG(ERROR) << status.message();
    lifetime.End((absl::IsFailedPrecondition(status) ? kExitFailure : kExitNotAllowed) + 1);
  });
  if (!agent.ok()) {
    std::fprintf(stderr, "muster-worker: %s\n", std::string(agent.status().message()).c_str());
    if (absl::IsPermissionDenied(agent.status())) return kExitNotAllowed;
    return absl::IsInvalidArgument(agent.status()) ? kExitUsage : kExitCannotCreate;
  }
  std::optional<muster::CertificateRenewer> renewer;
  if (options.security.has_node_certificate) renewer.emplace(options.coordinator, options.security);
  std::printf("listening http=%s name=%s\n", (*agent)->http_address().ToString().c_str(),
              options.name.c_str());
  std::fflush(stdout);
  supervisor.Notify("READY=1");
  return lifetime.Wait(**agent);
}
