// Notifications to systemd for a service of Type=notify: datagrams to the socket in $NOTIFY_SOCKET.
#ifndef MUSTER_COMMON_PROCESS_SYSTEMD_H_
#define MUSTER_COMMON_PROCESS_SYSTEMD_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster {

// Sends `state`, e.g. "READY=1". Does nothing and returns OK when `socket_path` (from
// $NOTIFY_SOCKET) is empty. Thread-safe.
absl::Status NotifySystemd(absl::string_view socket_path, absl::string_view state);

// The value of $NOTIFY_SOCKET; empty when it is unset.
std::string NotifySocket();

// The interval for WATCHDOG=1 messages, half of $WATCHDOG_USEC; infinite when the watchdog is off.
absl::Duration WatchdogInterval();

}  // namespace muster

#endif  // MUSTER_COMMON_PROCESS_SYSTEMD_H_
