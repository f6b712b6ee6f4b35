// muster-worker: the daemon on each node.
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

// A program that is absent is reported when a rank is launched: a node may run commands only.
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
  app.add_option("--config", config, "A file with any of these flags as NAME=VALUE lines")
      ->type_name("FILE");
  app.add_option("--coordinator", options.coordinator, "Address of the coordinator")
      ->type_name("HOST:PORT")
      ->required();
  app.add_option("--name", options.name, "This node's name in the cluster")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--advertise", options.advertise,
                 "Address at which other nodes reach this node's ranks; default: the source "
                 "address of this worker's connection to the coordinator")
      ->type_name("ADDR");
  app.add_option("--data-dir", options.data_dir,
                 "Directory for logs, state and caches; one worker each")
      ->type_name("DIR")
      ->required();
  app.add_option("--http", options.http,
                 "Address that serves /metrics, /livez, /readyz and /version")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--slots", options.devices.slots,
                 "CPU slots to offer; default: one per core, or none on a node with GPUs")
      ->type_name("N");
  app.add_option("--devices", options.devices.devices,
                 "Which devices to offer: auto (all GPUs, where there are any), cpu (no GPU), or "
                 "GPUs by index, as nvidia-smi counts, or UUID: 0,1,3")
      ->type_name("CHOICE")
      ->capture_default_str();
  app.add_option("--nvml-library", options.devices.nvml_library,
                 "NVML library, as the dynamic linker finds it; for tests")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--labels", labels, "Labels of this node, e.g. rack=a,zone=1")
      ->type_name("K=V,...")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--pin-cpus", options.pin_cpus,
               "Divide the CPUs of this worker among its slots and bind each rank to those of its "
               "slots; only for nodes with a single worker");
  app.add_option_function<std::string>(
         "--keep-logs",
         [&options](const std::string& text) {
           options.keep_logs.age = ParseAge("--keep-logs", text);
         },
         "Delete logs of finished jobs after this time, and with them the job's working and "
         "checkpoint directories on this node; default: 7d")
      ->type_name("DURATION");
  app.add_option_function<std::string>(
         "--keep-logs-bytes",
         [&options](const std::string& text) {
           options.keep_logs.bytes = ParseSize("--keep-logs-bytes", text);
         },
         "Delete the oldest logs of finished jobs beyond this size; default: 10GiB")
      ->type_name("SIZE");
  app.add_option(
         "--token-file", options.security.token_file,
         "File with the access token, of role worker; default: MUSTER_TOKEN, else the token "
         "of this user's coordinator on this machine")
      ->type_name("FILE");
  app.add_option("--tls-ca", options.security.tls.ca,
                 "CA certificate used to verify the coordinator; enables TLS")
      ->type_name("FILE");
  app.add_option("--tls-cert", options.security.tls.cert,
                 "Client certificate, for a coordinator that requires one")
      ->type_name("FILE");
  app.add_option("--tls-key", options.security.tls.key, "Private key of the certificate; mode 0600")
      ->type_name("FILE");
  app.add_option("--rank-binary", options.rank_binary,
                 "Trainer program; default: muster-rank beside this program")
      ->type_name("FILE");
}

// Ends when SIGTERM or SIGINT came and every rank is gone, or the coordinator refused this worker
// for good.
class Lifetime {
 public:
  // Before any thread is started, so that all of them leave the signals to Wait.
  Lifetime() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signals_ = signalfd(-1, &signals, SFD_CLOEXEC);
    event_ = eventfd(0, EFD_CLOEXEC);
  }

  // From any thread.
  void End(uint64_t status_plus_one) {
    [[maybe_unused]] const ssize_t n = write(event_, &status_plus_one, sizeof(status_plus_one));
  }

  int Wait(Agent& agent) {
    bool asked = false;
    while (true) {
      pollfd fds[2] = {{signals_, POLLIN, 0}, {event_, POLLIN, 0}};
      if (poll(fds, 2, -1) < 0) continue;
      uint64_t status = 0;
      if ((fds[1].revents & POLLIN) != 0 && read(event_, &status, sizeof(status)) > 0) {
        return static_cast<int>(status) - 1;
      }
      signalfd_siginfo info = {};
      if ((fds[0].revents & POLLIN) == 0 || read(signals_, &info, sizeof(info)) <= 0) continue;
      LOG(INFO) << "ending the ranks, then this worker" << (asked ? ", at once" : "");
      // Asked twice, it gives no more grace.
      std::optional<absl::Duration> grace;
      if (asked) grace = absl::ZeroDuration();
      asked = true;
      agent.StopRanks(grace, [this] { End(1); });
    }
  }

 private:
  int signals_ = -1;
  int event_ = -1;
};

}  // namespace

int main(int argc, char** argv) {
  // A peer that closes its end is an error of that write, not the worker's end. What the worker
  // starts gets the default back.
  std::signal(SIGPIPE, SIG_IGN);
  AgentOptions options;
  options.name = HostName();
  options.shim_binary = Installed("worker", "muster-shim");
  options.rank_binary = Installed("trainer", "muster-rank");
  std::vector<std::string> labels;
  CLI::App app(
      "The Muster daemon of one node: runs the ranks that the coordinator places on it.\n"
      "Each flag may also be given as MUSTER_FLAG in the environment.",
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
    // Not for the ranks.
    unsetenv("MUSTER_TOKEN");
  }
  google::InitGoogleLogging(argv[0]);
  // Debian's Abseil is built to look for lock cycles whenever a mutex is taken, gRPC's included.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  FLAGS_logtostderr = true;

  if (const absl::Status usable = CheckClientSecurity(options.security); !usable.ok()) {
    std::fprintf(stderr, "muster-worker: %s\n", std::string(usable.message()).c_str());
    return absl::IsInvalidArgument(usable) ? kExitUsage : kExitNotAllowed;
  }

  Lifetime lifetime;
  auto agent = Agent::Start(options, [&lifetime](const absl::Status& status) {
    LOG(ERROR) << "no session with the coordinator, and waiting will not help: "
               << status.message();
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
