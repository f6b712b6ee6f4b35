// Command-line flags of muster-worker.
#ifndef MUSTER_WORKER_FLAGS_H_
#define MUSTER_WORKER_FLAGS_H_

#include <memory>
#include <string>
#include <vector>

#include "worker/agent/agent.h"

namespace CLI {
class App;
}

namespace muster {

struct WorkerFlags {
  agent::AgentOptions agent;
  std::vector<std::string> labels;  // "key=value"; ParseFlags copies them to `agent`
  std::string config;
};

// The program's command line; parsing it fills `flags`, which must outlive it.
std::unique_ptr<CLI::App> WorkerApp(WorkerFlags& flags);

// Fills `flags` from the command line, the environment and the file that --config names; see
// common/flags/flags.h. Returns -1 when the worker should run, otherwise the exit code: 0 after
// --help and --version, kExitUsage after an error, which is written to stderr.
int ParseFlags(int argc, const char* const* argv, WorkerFlags& flags);

}  // namespace muster

#endif  // MUSTER_WORKER_FLAGS_H_
