// Paces the streams of the status page.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_TICKER_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_TICKER_H_

#include "absl/time/time.h"
#include "common/steady_notification.h"

namespace muster::service {

// The time between two events of one kind on a page.
inline constexpr absl::Duration kPageInterval = absl::Seconds(1);

// Thread-safe.
class Ticker {
 public:
  // Waits for an interval. Returns false at once after Stop.
  bool Wait() { return !stopped_.WaitFor(kPageInterval); }
  void Stop() { stopped_.Notify(); }
  bool stopped() const { return stopped_.HasBeenNotified(); }

 private:
  SteadyNotification stopped_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_TICKER_H_
