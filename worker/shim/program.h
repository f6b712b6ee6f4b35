// Turns a forked child into a program with a rank's settings.
#ifndef MUSTER_WORKER_SHIM_PROGRAM_H_
#define MUSTER_WORKER_SHIM_PROGRAM_H_

#include <string>
#include <vector>

namespace muster::shim {

// Restores the default handling of all signals and unblocks them.
void ResetSignals();

// Restricts this process to the CPUs; has no effect without any.
void BindToCpus(const std::vector<int>& cpus);

// Replaces this process by the command, which is searched for in the PATH of `environment`. Returns
// only on failure, with errno set.
void ExecProgram(const std::vector<std::string>& command,
                 const std::vector<std::string>& environment);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_PROGRAM_H_
