// Runs Muster's programs as processes for a benchmark, with their logs in a temporary directory.
#ifndef MUSTER_TESTS_BENCH_DAEMON_PROCESS_H_
#define MUSTER_TESTS_BENCH_DAEMON_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::bench {

// Path of the built program, e.g. "coordinator/muster-coordinator", relative to this program's
// location.
std::string BuiltProgram(const std::string& path);

// A directory that is removed recursively with the object.
class TemporaryDirectory {
 public:
  // Creates it in TMPDIR, or in /tmp if that is not set.
  static absl::StatusOr<std::unique_ptr<TemporaryDirectory>> Make();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// A daemon process. Not thread-safe. The process ends with this object, or with the thread that
// started it.
class DaemonProcess {
 public:
  // Starts argv[0] and returns when it has printed its `listening` line. Its log goes to
  // `log_path`. Errors: NOT_FOUND if the program does not exist, UNAVAILABLE with its log if it
  // exits before it listens.
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> Start(std::vector<std::string> argv,
                                                              const std::string& log_path);
  // Sends SIGTERM and waits for the process to exit.
  ~DaemonProcess();

  // Address from the `listening` line: "grpc" or "http" -> HOST:PORT.
  const std::string& address(const std::string& kind) { return addresses_[kind]; }
  // CPU time used by all its threads.
  absl::Duration CpuTime() const;
  uint64_t ResidentBytes() const;

 private:
  DaemonProcess() = default;
  absl::Status AwaitListening(int output, const std::string& log_path);

  pid_t pid_ = -1;
  std::map<std::string, std::string> addresses_;
};

// Starts a coordinator with SQLite in `directory`, on free loopback ports.
absl::StatusOr<std::unique_ptr<DaemonProcess>> StartCoordinator(const std::string& program,
                                                                const std::string& directory);

}  // namespace muster::bench

#endif  // MUSTER_TESTS_BENCH_DAEMON_PROCESS_H_
