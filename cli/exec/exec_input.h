// Sends stdin and changes of the window's size to a running exec.
#ifndef MUSTER_CLI_EXEC_EXEC_INPUT_H_
#define MUSTER_CLI_EXEC_EXEC_INPUT_H_

#include <thread>

#include "cli/client.h"
#include "cli/exec/terminal.h"

namespace muster::cli {

// Runs a thread until stdin and the window are not needed any more.
class ExecInputPump {
 public:
  // `window`: null if the command does not run in a terminal. Both must outlive this object.
  ExecInputPump(ExecStream& stream, WindowWatcher* window);
  // Stops without waiting for stdin. The stream must have ended, so that no write is in progress
  // for long.
  ~ExecInputPump();
  ExecInputPump(const ExecInputPump&) = delete;
  ExecInputPump& operator=(const ExecInputPump&) = delete;

 private:
  void Run();
  bool SendInput(bool& ended);
  bool SendSize();

  ExecStream& stream_;
  WindowWatcher* const window_;
  const int stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXEC_EXEC_INPUT_H_
