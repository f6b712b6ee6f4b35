// SIGINT, SIGTERM and SIGHUP as calls on a thread of their own, where any code may run.
#ifndef MUSTER_CLI_FOLLOW_SIGNALS_H_
#define MUSTER_CLI_FOLLOW_SIGNALS_H_

#include <signal.h>

#include <functional>
#include <map>
#include <thread>

namespace muster::cli {

// One at a time in a process: a handler of signals is the process's own. A signal that is ignored,
// as SIGHUP is under nohup, stays so.
class SignalWatcher {
 public:
  // `on_signal` gets the signal's number; called once per signal, never concurrently.
  explicit SignalWatcher(std::function<void(int)> on_signal);
  // After this `on_signal` is not called any more, and the signals do again what they did before.
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void Run();

  const std::function<void(int)> on_signal_;
  int pipe_[2] = {-1, -1};  // the handler writes a signal's number to it, the destructor a zero
  std::map<int, struct sigaction> before_;  // by signal
  std::thread thread_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_SIGNALS_H_
