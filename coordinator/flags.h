// Command-line flags of muster-coordinator.
#ifndef MUSTER_COORDINATOR_FLAGS_H_
#define MUSTER_COORDINATOR_FLAGS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/security/tls.h"

namespace CLI {
class App;
}

namespace muster {

struct Flags {
  std::string listen = "127.0.0.1:7070";
  std::string http = "127.0.0.1:7071";
  std::string data_dir;
  std::string store = "sqlite";
  std::string tokens;
  security::TlsFiles tls;
  std::string ca_key;
  std::string first_join_token;
  absl::Duration certificate_validity = absl::Hours(24 * 90);
  absl::Duration lease = absl::Seconds(10);
  absl::Duration job_lease = absl::Seconds(30);
  absl::Duration heartbeat_interval = absl::Seconds(1);
  size_t keep_jobs = 10000;
  absl::Duration keep_jobs_for = absl::InfiniteDuration();
  std::optional<uint64_t> job_memory;  // bytes; not set: see job_memory.h
  std::string checkpoint_dir;
  std::string scheduler_config;
  bool insecure_bind = false;
  std::string config;
};

// The program's command line; parsing it fills `flags`, which must outlive it.
std::unique_ptr<CLI::App> CoordinatorApp(Flags& flags);

// Fills `flags` from the command line, the environment (MUSTER_LISTEN and so on) and the file that
// --config names; see common/flags/flags.h. Returns nullopt when the coordinator should run,
// otherwise the exit status: 0 after --help and --version, kExitUsage after an error, which is
// written to stderr.
std::optional<int> ParseFlags(int argc, const char* const* argv, Flags& flags);

}  // namespace muster

#endif  // MUSTER_COORDINATOR_FLAGS_H_
