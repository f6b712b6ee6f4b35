// The state of a process and the wait of its main thread, from /proc.
#ifndef MUSTER_WORKER_SHIM_HANG_WAIT_STATE_H_
#define MUSTER_WORKER_SHIM_HANG_WAIT_STATE_H_

#include <sys/types.h>

#include <string>

namespace muster::shim {

// One of running, sleeping, disk, stopped, zombie, gone.
std::string ProcessState(pid_t pid);

// One of futex, sleep, socket, poll, pipe, file, child; empty if it runs or is not known. Uses the
// system call and its arguments; where the kernel does not show them to this process, the kernel
// function in which it waits.
std::string WaitsIn(pid_t pid);

// The process that does the rank's work: `pid` itself, or the child that it only waits for, as a
// wrapper script and muster-mpi do.
pid_t WorkingProcess(pid_t pid);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_HANG_WAIT_STATE_H_
