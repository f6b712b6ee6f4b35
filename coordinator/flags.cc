#include "coordinator/flags.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/flags/flags.h"
#include "common/http/address.h"
#include "common/limits.h"
#include "common/process/exit_code.h"
#include "common/version.h"

namespace muster {
namespace {

std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration <= absl::ZeroDuration() ||
      duration > absl::Hours(24)) {
    return absl::StrCat("'", text,
                        "' is not a positive duration of at most 24h, such as 500ms, 10s or 2m");
  }
  return "";
}

std::string CheckAddress(const std::string& text) {
  return std::string(ParseAddress(text).status().message());
}

void AddDuration(CLI::App& app, const std::string& name, absl::Duration& value,
                 const std::string& help) {
  app.add_option_function<std::string>(
         name, [&value](const std::string& text) { absl::ParseDuration(text, &value); }, help)
      ->check(CheckDuration)
      ->type_name("DURATION")
      ->default_str(absl::FormatDuration(value));
}

// Parses a duration or a whole number of days, such as "30d".
bool ParseAge(absl::string_view text, absl::Duration& age) {
  int days = 0;
  if (absl::ConsumeSuffix(&text, "d")) {
    if (!absl::SimpleAtoi(text, &days)) return false;
    age = days * absl::Hours(24);
  } else if (!absl::ParseDuration(text, &age)) {
    return false;
  }
  return age > absl::ZeroDuration();
}

CLI::Option* AddAge(CLI::App& app, const std::string& name, absl::Duration& age,
                    const std::string& help) {
  return app
      .add_option_function<std::string>(
          name, [&age](const std::string& text) { ParseAge(text, age); }, help)
      ->check([](const std::string& text) {
        absl::Duration parsed;
        return ParseAge(text, parsed)
                   ? ""
                   : absl::StrCat("'", text, "' is not an age such as 36h or 30d");
      })
      ->type_name("DURATION");
}

void AddRetention(CLI::App& app, Flags& flags) {
  app.add_option("--keep-jobs", flags.keep_jobs,
                 absl::StrCat("Number of newest finished jobs to keep, at most ", limits::kJobs,
                              "; each is kept for at least a minute"))
      ->check(CLI::Range(size_t{0}, limits::kJobs).description(""))
      ->type_name("N")
      ->capture_default_str();
  AddAge(app, "--keep-jobs-for", flags.keep_jobs_for,
         "Maximum age of finished jobs, such as 36h or 30d")
      ->default_str("forever");
}

void AddJobMemory(CLI::App& app, std::optional<uint64_t>& bytes) {
  app.add_option_function<uint64_t>(
         "--job-memory", [&bytes](const uint64_t& given) { bytes = given; },
         "Memory for jobs, such as 2GiB; one owner may use half of it")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false).description(""))
      ->check(CLI::Range(uint64_t{1} << 20, uint64_t{1} << 50).description(""))
      ->type_name("SIZE")
      ->default_str("a quarter of the memory of the machine or cgroup, from 256MiB to 8GiB");
}

// Also removes a '/' at the end.
void AddCheckpointDir(CLI::App& app, std::string& dir) {
  app.add_option_function<std::string>(
         "--checkpoint-dir",
         [&dir](const std::string& text) { dir = std::string(absl::StripSuffix(text, "/")); },
         "Directory shared by all nodes, for checkpoints; each new job gets a folder in it")
      ->check([](const std::string& text) {
        return absl::StartsWith(text, "/") ? ""
                                           : absl::StrCat("'", text, "' is not an absolute path");
      })
      ->type_name("DIR");
}

// Checks combinations of flags; returns an error message, or "" when they are valid.
std::string CheckCombination(const Flags& flags) {
  if (flags.store == "sqlite" && flags.data_dir.empty()) {
    return "--data-dir is required with --store=sqlite";
  }
  if (flags.lease < 3 * flags.heartbeat_interval) {
    return absl::StrCat("--lease=", absl::FormatDuration(flags.lease),
                        " must be at least three times --heartbeat-interval=",
                        absl::FormatDuration(flags.heartbeat_interval));
  }
  if (flags.job_lease < flags.lease) {
    return absl::StrCat("--job-lease=", absl::FormatDuration(flags.job_lease),
                        " must not be shorter than --lease=", absl::FormatDuration(flags.lease));
  }
  const absl::Status tls = security::CheckTlsFiles(flags.tls);
  if (!tls.ok()) return std::string(tls.message());
  if (!flags.tls.ca.empty() && flags.tls.cert.empty()) {
    return "--tls-ca requires --tls-cert and --tls-key";
  }
  if (!flags.ca_key.empty() && flags.tls.ca.empty()) {
    return "--ca-key requires --tls-ca, the certificate of that key";
  }
  if (flags.tls.cert.empty() && !flags.insecure_bind &&
      !IsLoopback(ParseAddress(flags.listen)->host)) {
    return absl::StrCat(
        "--listen=", flags.listen,
        " is reachable from other machines; without TLS, an eavesdropper can steal a token "
        "and run programs here; set --tls-cert and --tls-key, or pass --insecure-bind to "
        "accept the risk");
  }
  return "";
}

}  // namespace

std::unique_ptr<CLI::App> CoordinatorApp(Flags& flags) {
  auto program = std::make_unique<CLI::App>(
      "Queues training jobs, places their ranks on nodes and supervises them.\n"
      "Each flag can also be set as MUSTER_FLAG in the environment or in the --config file.",
      "muster-coordinator");
  CLI::App& app = *program;
  app.set_help_flag("-h,--help", "Print this page");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--listen", flags.listen, "gRPC address; port 0 selects a free port")
      ->check(CheckAddress)
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--http", flags.http,
                 "HTTP address for metrics, health checks and the status page")
      ->check(CheckAddress)
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--data-dir", flags.data_dir, "Directory for job state; created if missing")
      ->type_name("DIR");
  app.add_option("--store", flags.store,
                 "Storage backend: sqlite, or memory to keep nothing on disk")
      ->check(CLI::IsMember({"sqlite", "memory"}).description(""))
      ->type_name("KIND")
      ->capture_default_str();
  app.add_option(
         "--tokens", flags.tokens,
         "Access token file with lines ROLE TOKEN [NAME], where ROLE is view, submit, admin or "
         "worker; mode 0600; reloaded on change")
      ->type_name("FILE");
  app.add_option("--tls-cert", flags.tls.cert, "Certificate used to serve TLS (PEM)")
      ->type_name("FILE");
  app.add_option("--tls-key", flags.tls.key, "Private key of --tls-cert (PEM); mode 0600")
      ->type_name("FILE");
  app.add_option("--tls-ca", flags.tls.ca,
                 "CA certificate used to verify clients; requires client certificates")
      ->type_name("FILE");
  app.add_option("--ca-key", flags.ca_key,
                 "Private key of --tls-ca (PEM), with which the coordinator issues certificates to "
                 "nodes that join, and renews its own; mode 0600")
      ->type_name("FILE");
  app.add_option("--first-join-token", flags.first_join_token,
                 "File of muster cluster init with the digest of a join token, which the "
                 "coordinator takes over and deletes")
      ->type_name("FILE");
  AddAge(app, "--certificate-validity", flags.certificate_validity,
         "Validity of the certificates of nodes, which renew them when a third is left")
      ->default_str("90d");
  AddDuration(app, "--lease", flags.lease,
              "Time without a heartbeat after which no more ranks are placed on a node");
  AddDuration(app, "--job-lease", flags.job_lease,
              "Time without a heartbeat after which a node's ranks are lost and their jobs start "
              "elsewhere, or a job's failure_timeout if longer");
  AddDuration(app, "--heartbeat-interval", flags.heartbeat_interval,
              "Interval between worker heartbeats");
  AddRetention(app, flags);
  AddJobMemory(app, flags.job_memory);
  AddCheckpointDir(app, flags.checkpoint_dir);
  app.add_option("--scheduler-config", flags.scheduler_config,
                 "YAML file with the scheduler's settings: shares, limits, ageing, preemption")
      ->type_name("FILE");
  app.add_flag("--insecure-bind", flags.insecure_bind,
               "Allow plaintext on an address that other machines can reach");
  app.add_option("--config", flags.config, "File that sets these options, one name=value per line")
      ->type_name("FILE");
  app.set_version_flag("--version", absl::StrCat("muster-coordinator ", kSoftwareVersion),
                       "Print the version");
  return program;
}

std::optional<int> ParseFlags(int argc, const char* const* argv, Flags& flags) {
  const std::unique_ptr<CLI::App> app = CoordinatorApp(flags);
  if (const int code = flags::ParseOrExit(*app, argc, argv); code >= 0) return code;
  const std::string problem = CheckCombination(flags);
  if (!problem.empty()) {
    std::cerr << problem << "\n";
    return kExitUsage;
  }
  return std::nullopt;
}

}  // namespace muster
