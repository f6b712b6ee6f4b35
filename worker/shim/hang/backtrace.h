// Native stacks of the threads of another process.
#ifndef MUSTER_WORKER_SHIM_HANG_BACKTRACE_H_
#define MUSTER_WORKER_SHIM_HANG_BACKTRACE_H_

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace muster::shim {

// The stacks as described at Inspection::stack, the main thread first, at most `bytes` of text;
// equal stacks of several threads are shown once. Empty if the process may not be traced.
//
// Stops one thread at a time, each for a few milliseconds, from a child process that ends before
// addresses are named: when a tracing process ends, the kernel lets the traced threads continue.
// Must not be called by a process that waits for any child.
std::string NativeStacks(pid_t pid, size_t bytes);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_HANG_BACKTRACE_H_
