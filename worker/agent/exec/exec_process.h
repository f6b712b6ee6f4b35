// Helper processes of the worker, and the command that runs beside a rank in a companion process of
// the shim (worker/shim/companion.h).
#ifndef MUSTER_WORKER_AGENT_EXEC_EXEC_PROCESS_H_
#define MUSTER_WORKER_AGENT_EXEC_EXEC_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/files/owned_fd.h"
#include "proto/muster/v1/cluster.pb.h"
#include "worker/agent/event_loop.h"

namespace muster::agent {

// Starts and reaps the worker's helper processes.
struct ChildProgram {
  std::vector<std::string> command;  // searched for in the worker's PATH
  std::vector<std::string> environment;
  std::vector<int> descriptors;  // become 0, 1, 2, … of the child; all others must close on exec
};

// Starts the program in a session of its own, with default signal handlers.
absl::StatusOr<pid_t> StartChild(const ChildProgram& program);

// Reaps the child when it exits and passes its exit code on; 128+n for signal n. Must be called on
// the loop.
void ReapOnExit(EventLoop& loop, pid_t child, std::function<void(int exit_code)> on_exit);

// Must be used on the loop's thread. The destructor kills the command and its children.
class ExecProcess {
 public:
  // `rank_directory` holds the instructions of the rank's shim. `on_exit` receives the command's
  // exit code once none of its processes is left; it may be called after this object has been
  // destroyed. Errors: FAILED_PRECONDITION if the rank has not been started, or system errors.
  static absl::StatusOr<std::unique_ptr<ExecProcess>> Start(
      EventLoop& loop, const std::string& shim_binary, const std::string& rank_directory,
      const v1::ExecInput::Start& start, std::function<void(int exit_code)> on_exit);
  ~ExecProcess();
  ExecProcess(const ExecProcess&) = delete;
  ExecProcess& operator=(const ExecProcess&) = delete;

  // Reads available output into `data`; leaves it empty at the end. Returns false if there is none
  // at present.
  bool ReadOut(std::string& data) { return Read(out_, data); }
  bool ReadErr(std::string& data) { return Read(err_, data); }
  // Calls `on_readable` when output is available or has ended, until UnwatchOutput.
  void WatchOutput(const std::function<void()>& on_readable);
  void UnwatchOutput();

  // Writes `data` to stdin; calls `done` when stdin has accepted all of it or is closed. Must not
  // be called again before.
  void Write(std::string data, std::function<void()> done);
  // A terminal receives ^D instead.
  void CloseInput();
  void Resize(uint32_t rows, uint32_t columns);
  void Signal(int signal);
  // Kills the command and its children.
  void Kill();

 private:
  explicit ExecProcess(EventLoop& loop) : loop_(loop) {}
  bool OpenTerminal(OwnedFd& theirs);
  bool OpenPipes(OwnedFd theirs[3]);
  static bool Read(OwnedFd& fd, std::string& data);
  void Flush();
  void Close(OwnedFd& fd);

  EventLoop& loop_;
  bool terminal_ = false;
  OwnedFd in_;   // duplicate of `out_` if this is a terminal
  OwnedFd out_;  // none once its end has been read
  OwnedFd err_;
  OwnedFd control_;
  std::string pending_;  // input that stdin has not accepted
  std::function<void()> on_written_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_EXEC_EXEC_PROCESS_H_
