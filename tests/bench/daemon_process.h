// The real programs for a benchmark: each a process of its own, with its log in a directory that
// goes with it.
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

// Where Bazel put the program at `path`, e.g. "coordinator/muster-coordinator", as seen from this
// one.
std::string BuiltProgram(const std::string& path);

// Removed with all that is in it.
class TemporaryDirectory {
 public:
  // In TMPDIR, or else /tmp.
  static absl::StatusOr<std::unique_ptr<TemporaryDirectory>> Make();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// Not thread-safe. The process ends with this object, or with the thread that started it.
class DaemonProcess {
 public:
  // argv[0] is the program. Returns when it has written its `listening` line. Its log goes to
  // `log_path`. Errors: NOT_FOUND for a program that is not there, UNAVAILABLE with its log when it
  // ends before it listens.
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> Start(std::vector<std::string> argv,
                                                              const std::string& log_path);
  // SIGTERM, then waits for its end.
  ~DaemonProcess();

  // Of the `listening` line: "grpc" or "http" -> HOST:PORT.
  const std::string& address(const std::string& kind) { return addresses_[kind]; }
  // Processor time that all its threads have used.
  absl::Duration CpuTime() const;
  uint64_t ResidentBytes() const;

 private:
  DaemonProcess() = default;
  absl::Status AwaitListening(int output, const std::string& log_path);

  pid_t pid_ = -1;
  std::map<std::string, std::string> addresses_;
};

// A coordinator with SQLite in `directory`, on free ports of loopback.
absl::StatusOr<std::unique_ptr<DaemonProcess>> StartCoordinator(const std::string& program,
                                                                const std::string& directory);

}  // namespace muster::bench

#endif  // MUSTER_TESTS_BENCH_DAEMON_PROCESS_H_
