// Inspects the processes of a silent rank.
#ifndef MUSTER_WORKER_SHIM_HANG_INSPECT_H_
#define MUSTER_WORKER_SHIM_HANG_INSPECT_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "worker/shim/credentials.h"
#include "worker/shim/protocol.h"

namespace muster::shim {

// Inspects the rank with main process `pid`: its state, what it waits in, and its stacks. Stacks of
// Python functions come from `py-spy dump`, if it is in the rank's PATH, those of native functions
// from NativeStacks. Takes a few seconds at most; the same conditions apply as for NativeStacks.
Inspection Inspect(pid_t pid, double cpu_ratio);

// Text that fits into a message: bytes other than printable ASCII and newlines become '?'.
std::string Printable(std::string text);
// The output of `py-spy dump` in the format of Inspection::stack; the main thread comes first.
std::string FromPySpy(const std::string& output);

// Starts a child process that inspects the rank and then writes the result to `path`. Returns the
// child's pid, or -1; the caller reaps it. Programs and files of the rank are used with the rights
// of `user`, if there is one: the rank chooses the py-spy in its PATH, and the files it has mapped.
pid_t StartInspector(pid_t rank, const std::optional<Credentials>& user, double cpu_ratio,
                     const std::string& path);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_HANG_INSPECT_H_
