#include "worker/flags.h"

#include <cstdint>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/flags/flags.h"
#include "common/version.h"
#include "spec/units.h"

namespace muster {
namespace {

absl::Duration ParseAge(const std::string& flag, const std::string& text) {
  int days = 0;
  if (absl::EndsWith(text, "d") && absl::SimpleAtoi(absl::StripSuffix(text, "d"), &days) &&
      days >= 0) {
    return absl::Hours(24) * days;
  }
  const auto age = spec::ParseDuration(text);
  if (!age.ok()) throw CLI::ValidationError(flag, std::string(age.status().message()));
  return *age;
}

uint64_t ParseSize(const std::string& flag, const std::string& text) {
  const auto bytes = spec::ParseSize(text);
  if (!bytes.ok()) throw CLI::ValidationError(flag, std::string(bytes.status().message()));
  return *bytes;
}

}  // namespace

std::unique_ptr<CLI::App> WorkerApp(WorkerFlags& flags) {
  auto program = std::make_unique<CLI::App>(
      "Starts and supervises the ranks that the coordinator places on this node.\n"
      "Each flag can also be set as MUSTER_FLAG in the environment or in the --config file.",
      "muster-worker");
  CLI::App& app = *program;
  app.set_help_flag("-h,--help", "Print this page");
  agent::AgentOptions& options = flags.agent;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_version_flag("--version", std::string("muster-worker ") + kSoftwareVersion,
                       "Print the version");
  app.add_option("--config", flags.config, "File that sets these options, one name=value per line")
      ->type_name("FILE");
  app.add_option("--coordinator", options.coordinator, "Coordinator address")
      ->type_name("HOST:PORT")
      ->required();
  app.add_option("--name", options.name,
                 "Name of this node in the cluster (default: the host name)")
      ->type_name("NAME");
  app.add_option("--advertise", options.advertise,
                 "Address at which other nodes reach this node's ranks (default: the source "
                 "address of this worker's connection to the coordinator)")
      ->type_name("ADDR");
  app.add_option("--data-dir", options.data_dir,
                 "Directory for logs, state and caches; used by one worker only")
      ->type_name("DIR")
      ->required();
  app.add_option("--machine-id", options.machine_id,
                 "Identity of this machine, which differs between machines with the same node name "
                 "(default: /etc/machine-id)")
      ->type_name("ID");
  app.add_option("--http", options.http,
                 "Address to serve /metrics, /livez, /readyz and /version on")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--peer-listen", options.peer_listen,
                 "Address on which other workers ask about leases (default: all interfaces with "
                 "--tls-cert, loopback if the coordinator is on this machine, otherwise none)")
      ->type_name("HOST:PORT");
  app.add_option_function<std::string>(
         "--coordinator-refusal",
         [&options](const std::string& choice) { options.trusts_refusals = choice == "trust"; },
         "Whether a refused connection shows that the coordinator's process has ended, so that "
         "ranks may continue: trust, or ignore where something else than its machine answers at "
         "its address, such as a proxy or NAT")
      ->check(CLI::IsMember({"trust", "ignore"}))
      ->type_name("CHOICE")
      ->default_str("trust");
  app.add_option("--slots", options.devices.slots,
                 "Number of CPU slots (default: one per core, or none on a node with GPUs)")
      ->type_name("N");
  app.add_option(
         "--devices", options.devices.devices,
         "Devices to offer: auto (the GPUs that CUDA_VISIBLE_DEVICES admits, if any; all if "
         "it is not set), cpu (no GPUs), or a list of GPU indices as shown by nvidia-smi, "
         "or UUIDs, e.g. 0,1,3")
      ->type_name("CHOICE")
      ->capture_default_str();
  app.add_option("--required-cuda", options.devices.required_cuda,
                 "CUDA version that the driver must support, or no ranks run on the GPUs: auto "
                 "(that of train jobs), none, or a version such as 12.8")
      ->type_name("VERSION")
      ->capture_default_str();
  app.add_option("--nvml-library", options.devices.nvml_library,
                 "NVML library name or path; for tests")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--labels", flags.labels, "Labels of this node, e.g. rack=a,zone=1")
      ->type_name("K=V,...")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--pin-cpus", options.pin_cpus,
               "Divide this worker's CPUs among its slots and bind each rank to the CPUs of its "
               "slots; only for nodes with a single worker");
  app.add_option_function<std::string>(
         "--inherit-env",
         [&options](const std::string& text) {
           options.inherit_env = text == "all" ? agent::Inherit::kAll : agent::Inherit::kDefault;
         },
         "Variables of this worker's environment that ranks inherit: default (PATH, HOME, the "
         "locale and settings of the GPU libraries) or all")
      ->check(CLI::IsMember({"default", "all"}).description(""))
      ->type_name("CHOICE")
      ->default_str("default");
  app.add_option_function<std::string>(
         "--file-cache-bytes",
         [&options](const std::string& text) {
           options.file_cache_bytes = ParseSize("--file-cache-bytes", text);
         },
         "Size of the cache of jobs' files; the least recently used are removed (default: 4GiB)")
      ->type_name("SIZE");
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
  app.add_option_function<std::string>(
         "--rank-log-bytes",
         [&options](const std::string& text) {
           options.rank_log_bytes = ParseSize("--rank-log-bytes", text);
         },
         "Limit of each rank's stdout log and of its stderr log, or 0 for none: beyond it, the "
         "oldest output is dropped (default: 1GiB)")
      ->type_name("SIZE");
  app.add_option_function<std::string>(
         "--memory-dir",
         [&options](const std::string& text) { options.memory_dir = text == "none" ? "" : text; },
         "Folder of a file system in memory, in which the ranks of a train job that lose a peer "
         "keep the state of their last step until the job has restarted, or none (default: "
         "/dev/shm)")
      ->type_name("DIR");
  app.add_option("--job-user", options.job_user,
                 "Unix user that runs the ranks, or {owner} for the user with the name of the "
                 "job's owner; the worker must be root or have the capabilities to change its user "
                 "(default: the worker's own user)")
      ->type_name("NAME");
  app.add_option("--job-user-min-uid", options.job_user_min_uid,
                 "Smallest uid of an owner's user with --job-user={owner}; root is always refused")
      ->type_name("UID")
      ->capture_default_str();
  app.add_option("--secrets-dir", options.secrets_dir,
                 "Folder with the secrets that jobs name in env: a file OWNER/NAME for the jobs of "
                 "one owner, or NAME for all; mode 0600 (default: none)")
      ->type_name("DIR");
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
  return program;
}

int ParseFlags(int argc, const char* const* argv, WorkerFlags& flags) {
  const std::unique_ptr<CLI::App> app = WorkerApp(flags);
  if (const int code = flags::ParseOrExit(*app, argc, argv); code >= 0) return code;
  for (const std::string& label : flags.labels) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(label, absl::MaxSplits('=', 1));
    flags.agent.labels[parts.first] = parts.second;
  }
  return -1;
}

}  // namespace muster
