// The shim's part in the detection of hangs: reports the rank's silence to its worker, and inspects
// the rank on request.
#ifndef MUSTER_WORKER_SHIM_HANG_WATCH_H_
#define MUSTER_WORKER_SHIM_HANG_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "worker/shim/activity.h"
#include "worker/shim/credentials.h"

namespace muster::shim {

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

#endif  // MUSTER_WORKER_SHIM_HANG_WATCH_H_
