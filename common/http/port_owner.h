// Who holds a port that somebody else wants.
#ifndef MUSTER_COMMON_HTTP_PORT_OWNER_H_
#define MUSTER_COMMON_HTTP_PORT_OWNER_H_

#include <cstdint>
#include <string>

namespace muster {

// The process that listens on a TCP port of this machine, for people: `muster-coordinator (pid
// 4411)`. Empty when nobody does, or it cannot be told: another user's process, or another pid
// namespace's. Looks through all of /proc: for the moment of a failure. Any thread.
std::string FindPortOwner(uint16_t port);

}  // namespace muster

#endif  // MUSTER_COMMON_HTTP_PORT_OWNER_H_
