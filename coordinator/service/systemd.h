// What systemd wants to hear of a service of Type=notify: datagrams to the socket in
// $NOTIFY_SOCKET.
#ifndef MUSTER_COORDINATOR_SERVICE_SYSTEMD_H_
#define MUSTER_COORDINATOR_SERVICE_SYSTEMD_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster::service {

// Sends `state`, e.g. "READY=1". OK without effect when `socket_path` (of $NOTIFY_SOCKET) is empty.
// Thread-safe.
absl::Status NotifySystemd(absl::string_view socket_path, absl::string_view state);

// Of $NOTIFY_SOCKET; empty when there is none.
std::string NotifySocket();

// How often to say WATCHDOG=1, half of what $WATCHDOG_USEC allows; infinite when nobody watches.
absl::Duration WatchdogInterval();

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SYSTEMD_H_
