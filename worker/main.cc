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
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/exit_code.h"
#include "common/find_program.h"
#include "common/flags/flags.h"
#include "common/program_folder.h"
#include "common/version.h"
#include "glog/logging.h"
#include "spec/units.h"
#include "worker/agent/agent.h"

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

absl::Duration ParseAge(const std::string& flag, const std::string& text) {
  int days = 0;
  if (absl::EndsWith(text, "d") && absl::SimpleAtoi(absl::StripSuffix(text, "d"), &days) &&
      days >= 0) {
    return absl::Hours(24) * days;
  }
  const auto age = muster::spec::ParseDuration(text);
  if (!age.ok()) throw CLI::ValidationError(flag, std::string(age.status().message()));
  return *age;
}

uint64_t ParseSize(const std::string& flag, const std::string& text) {
  const auto bytes = muster::spec::ParseSize(text);
  if (!bytes.ok()) throw CLI::ValidationError(flag, std::string(bytes.status().message()));
  return *bytes;
}

void AddOptions(CLI::App& app, AgentOptions& options, std::vector<std::string>& labels,
                std::string& config) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_version_flag("--version", std::string("muster-worker ") + muster::kSoftwareVersion);
  app.add_option("--config", config, "File that sets these flags, one NAME=VALUE per line")
      ->type_name("FILE");
  app.add_option("--coordinator", options.coordinator, "Coordinator address")
      ->type_name("HOST:PORT")
      ->required();
  app.add_option("--name", options.name, "Name of this node in the cluster")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--advertise", options.advertise,
                 "Address at which other nodes reach this node's ranks (default: the source "
                 "address of this worker's connection to the coordinator)")
      ->type_name("ADDR");
  app.add_option("--data-dir", options.data_dir,
                 "Directory for logs, state and caches; used by one worker only")
      ->type_name("DIR")
      ->required();
  app.add_option("--http", options.http,
                 "Address to serve /metrics, /livez, /readyz and /version on")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--slots", options.devices.slots,
                 "Number of CPU slots (default: one per core, or none on a node with GPUs)")
      ->type_name("N");
  app.add_option("--devices", options.devices.devices,
                 "Devices to offer: auto (all GPUs, if any), cpu (no GPUs), or a list of GPU "
                 "indices as shown by nvidia-smi, or UUIDs, e.g. 0,1,3")
      ->type_name("CHOICE")
      ->capture_default_str();
  app.add_option("--nvml-library", options.devices.nvml_library,
                 "NVML library name or path; for tests")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--labels", labels, "Labels of this node, e.g. rack=a,zone=1")
      ->type_name("K=V,...")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--pin-cpus", options.pin_cpus,
               "Divide this worker's CPUs among its slots and bind each rank to the CPUs of its "
               "slots; only for nodes with a single worker");
  app.add_option_function<std::string>(
         "--keep-logs",
         [&options](const std::string& text) {
           options.keep_logs.age = ParseAge("--keep-logs", text);
         },
         "Delete logs of finished jobs, and then their working and checkpoint directories on this "
         "node, after this time (default: 7d)")
      ->type_name("DURATION");
  app.add_option_function<std::string>(
         "--keep-logs-bytes",
         [&options](const std::string& text) {
           options.keep_logs.bytes = ParseSize("--keep-logs-bytes", text);
         },
         "Delete the oldest logs of finished jobs when they exceed this size (default: 10GiB)")
      ->type_name("SIZE");
  app.add_option("--token-file", options.security.token_file,
                 "File that contains an access token with the role worker (default: MUSTER_TOKEN, "
                 "then the token of this user's coordinator on this machine)")
      ->type_name("FILE");
  app.add_option("--tls-ca", options.security.tls.ca,
                 "CA certificate used to verify the coordinator; enables TLS")
      ->type_name("FILE");
  app.add_option("--tls-cert", options.security.tls.cert,
                 "Client certificate, if the coordinator requires one")
      ->type_name("FILE");
  app.add_option("--tls-key", options.security.tls.key,
                 "Private key of the client certificate; mode 0600")
      ->type_name("FILE");
  app.add_option("--rank-binary", options.rank_binary,
                 "Trainer program (default: muster-rank next to this program)")
      ->type_name("FILE");
}

// Waits until SIGTERM or SIGINT has arrived and every rank has ended, or until the coordinator has
// rejected this worker.
class Lifetime {
 public:
  // Must be created before any thread, so that all threads block the signals and Wait receives
  // them.
  Lifetime() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
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

}  // namespace

int main(int argc, char** argv) {
  // Report a closed peer as an error of the write instead of a signal. Child processes get the
  // default handler back.
  std::signal(SIGPIPE, SIG_IGN);
  AgentOptions options;
  options.name = HostName();
  options.shim_binary = Installed("worker", "muster-shim");
  options.rank_binary = Installed("trainer", "muster-rank");
  std::vector<std::string> labels;
  CLI::App app(
      "Run the Muster worker daemon, which runs the ranks that the coordinator places on this "
      "node.\n"
      "Each flag can also be set as MUSTER_FLAG in the environment.",
      "muster-worker");
  std::string config;
  AddOptions(app, options, labels, config);
  if (const int code = muster::flags::ParseOrExit(app, argc, argv); code >= 0) return code;
  for (const std::string& label : labels) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(label, absl::MaxSplits('=', 1));
    options.labels[parts.first] = parts.second;
  }
  if (const char* token = std::getenv("MUSTER_TOKEN"); token != nullptr) {
    options.security.token = token;
    // Ranks must not inherit it.
    unsetenv("MUSTER_TOKEN");
  }
  google::InitGoogleLogging(argv[0]);
  // Debian's Abseil is built with deadlock detection, which checks every mutex, including gRPC's.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  FLAGS_logtostderr = true;

  if (const absl::Status usable = CheckClientSecurity(options.security); !usable.ok()) {
    std::fprintf(stderr, "muster-worker: %s\n", std::string(usable.message()).c_str());
    return absl::IsInvalidArgument(usable) ? kExitUsage : kExitNotAllowed;
  }

  Lifetime lifetime;
  auto agent = Agent::Start(options, [&lifetime](const absl::Status& status) {
    LOG(ERROR) << "the coordinator rejected this worker; not retrying: " << status.message();
    lifetime.End((absl::IsFailedPrecondition(status) ? kExitFailure : kExitNotAllowed) + 1);
  });
  if (!agent.ok()) {
    std::fprintf(stderr, "muster-worker: %s\n", std::string(agent.status().message()).c_str());
    return absl::IsInvalidArgument(agent.status()) ? kExitUsage : kExitCannotCreate;
  }
  std::printf("listening http=%s name=%s\n", (*agent)->http_address().ToString().c_str(),
              options.name.c_str());
  std::fflush(stdout);
  return lifetime.Wait(**agent);
}
