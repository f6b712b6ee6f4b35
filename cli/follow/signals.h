// Delivers SIGINT, SIGTERM and SIGHUP as calls on a separate thread, which may run any code.
#ifndef MUSTER_CLI_FOLLOW_SIGNALS_H_
#define MUSTER_CLI_FOLLOW_SIGNALS_H_

#include <signal.h>

#include <functional>
#include <map>
#include <thread>

namespace muster::cli {

// At most one instance per process, since signal handlers are process-wide. A signal that is
// ignored, as SIGHUP is under nohup, stays ignored.
class SignalWatcher {
 public:
  // `on_signal` receives the signal's number; it is called once per signal, never concurrently.
  explicit SignalWatcher(std::function<void(int)> on_signal);
  // Afterwards `on_signal` is not called any more, and the previous signal handlers are restored.
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void Run();

  const std::function<void(int)> on_signal_;
  int pipe_[2] = {-1, -1};  // the handler writes a signal's number to it, the destructor a zero
  std::map<int, struct sigaction> before_;  // by signal number
  std::thread thread_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_SIGNALS_H_
