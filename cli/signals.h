// SIGINT and SIGTERM as calls on a thread of their own, where any code may run.
#ifndef MUSTER_CLI_SIGNALS_H_
#define MUSTER_CLI_SIGNALS_H_

#include <signal.h>

#include <functional>
#include <thread>

namespace muster::cli {

// One at a time in a process: a handler of signals is the process's own.
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
  struct sigaction before_int_;
  struct sigaction before_term_;
  std::thread thread_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_SIGNALS_H_
