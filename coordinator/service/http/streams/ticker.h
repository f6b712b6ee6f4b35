// Paces the streams of the status page.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_TICKER_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_TICKER_H_

#include "absl/time/time.h"
#include "common/time/steady_notification.h"
#include "coordinator/service/http/streams/event_writer.h"

namespace muster::service {

// The time between two events of one kind on a page.
inline constexpr absl::Duration kPageInterval = absl::Seconds(1);
// The longest time in which a stream does not notice that its viewer has lost the right to it.
inline constexpr absl::Duration kLookInterval = absl::Milliseconds(250);

// Thread-safe.
class Ticker {
 public:
  // Waits for kPageInterval. Returns false when the stream has ended, and at once after Stop.
  bool Wait(const EventWriter& stream) {
    for (int i = 0; i < kPageInterval / kLookInterval; ++i) {
      if (!stream.IsOpen() || stopped_.WaitFor(kLookInterval)) return false;
    }
    return stream.IsOpen();
  }
  void Stop() { stopped_.Notify(); }
  bool stopped() const { return stopped_.HasBeenNotified(); }

 private:
  SteadyNotification stopped_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_TICKER_H_
