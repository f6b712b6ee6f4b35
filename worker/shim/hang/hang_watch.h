// The shim's part in the detection of hangs: reports the rank's silence to its worker, and inspects
// the rank on request.
#ifndef MUSTER_WORKER_SHIM_HANG_HANG_WATCH_H_
#define MUSTER_WORKER_SHIM_HANG_HANG_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "worker/shim/credentials.h"

namespace muster::shim {

// Totals of one process, with its finished threads and children.
struct ProcessCounters {
  uint64_t io_bytes = 0;  // read and written through system calls and memory maps
  uint64_t cpu_ms = 0;    // CPU time of the process alone
};
using TreeCounters = std::map<pid_t, ProcessCounters>;

// Reads /proc for all descendants of `root`.
TreeCounters ReadTree(pid_t root);

// Input and output counts as activity above 16 KiB/s on average, or in a burst of as much as that
// rate gives in a quarter of the timeout (1 to 30 s). Below are the helpers of programs that hang:
// heartbeats over TCPStore connections, monitors that read /proc, and logging agents. Use of the
// CPU does not count: ranks that wait for a lost peer may spin.
//
// Until the first output or progress, a program gets at least a minute, for imports that only
// compute.
class Activity {
 public:
  Activity(int64_t timeout_ms, int64_t now_ms);

  int64_t sample_interval_ms() const { return sample_interval_ms_; }
  // The rank wrote to stdout or stderr, or reported progress.
  void OnOutput(int64_t now_ms);
  void OnSample(TreeCounters counters, int64_t now_ms);
  // Drops the sample that the next one would be compared with.
  void ForgetSample() { sample_ms_ = -1; }

  int64_t SilenceMs(int64_t now_ms) const;
  // Whether the silence exceeds a quarter of the timeout, and is to be reported.
  bool IsSilent(int64_t now_ms) const { return SilenceMs(now_ms) >= timeout_ms_ / 4; }
  // CPU seconds per second of the tree, as of the latest sample.
  double cpu_ratio() const { return cpu_ratio_; }

 private:
  const int64_t timeout_ms_;
  const int64_t sample_interval_ms_;
  const int64_t burst_bytes_;
  // No silence is counted before this time.
  int64_t silent_from_ms_;
  int64_t sample_ms_ = -1;  // -1: no sample
  TreeCounters sample_;
  int64_t pending_bytes_ = 0;  // what exceeds the rate, since the latest activity
  double cpu_ratio_ = 0;
};

// Methods that return a string return a line for the workers, or "".
class HangWatch {
 public:
  // A timeout of 0 disables everything.
  HangWatch(int64_t timeout_ms, int64_t now_ms);

  // Time until OnTimer is to be called again; negative: never.
  int64_t interval_ms() const;
  std::string OnTimer(int64_t now_ms);
  // The rank had output or progress.
  std::string OnOutput(int64_t now_ms);
  // The line for a worker that has just connected.
  std::string StateLine(int64_t now_ms) const;

  // Starts an inspection unless one runs; see StartInspector.
  void Inspect(pid_t rank, const std::optional<Credentials>& user);
  // A child was reaped. If it was the inspector, its result is in kInspectionFile.
  std::string OnReaped(pid_t child);

 private:
  // Returns a line if the silence begins or ends.
  std::string Update(int64_t now_ms);

  std::optional<Activity> activity_;
  bool silent_ = false;  // state that was last reported
  pid_t inspector_ = -1;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_HANG_HANG_WATCH_H_
