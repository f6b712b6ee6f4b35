// Finds the process that occupies a port, for error messages.
#ifndef MUSTER_COMMON_HTTP_PORT_OWNER_H_
#define MUSTER_COMMON_HTTP_PORT_OWNER_H_

#include <cstdint>
#include <string>

namespace muster {

// The process that listens on a TCP port of this machine, human-readable: `muster-coordinator (pid
// 4411)`. Empty if no process listens, or if the process belongs to another user or pid namespace.
// Scans all of /proc, so call it only on failure. Thread-safe.
std::string FindPortOwner(uint16_t port);

}  // namespace muster

#endif  // MUSTER_COMMON_HTTP_PORT_OWNER_H_
