// Starts and reaps the worker's helper processes.
#ifndef MUSTER_WORKER_AGENT_CHILD_PROCESS_H_
#define MUSTER_WORKER_AGENT_CHILD_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/agent/event_loop.h"

namespace muster::agent {

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

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CHILD_PROCESS_H_
