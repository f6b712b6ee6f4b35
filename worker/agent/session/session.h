// The worker's stream to the coordinator: reopened whenever it breaks, and kept alive by
// heartbeats.
#ifndef MUSTER_WORKER_AGENT_SESSION_SESSION_H_
#define MUSTER_WORKER_AGENT_SESSION_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/security/client_security.h"
#include "common/time/steady_cond_var.h"
#include "common/time/time.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/rank/progress_board.h"

namespace muster::agent {

// Must be destroyed outside the loop; Send must be called on the loop. Heartbeats are
// sent by a separate thread and overtake queued messages, so that load on the worker does not delay
// them.
class Session {
 public:
  struct Acknowledgement {
    SteadyTime sent;      // when the Hello or heartbeat was sent (BootNow)
    uint64_t term = 0;    // of the coordinator; 0: of an earlier build
    std::string address;  // of the coordinator, as in refusal_probe.h
    // Replaces the peers of the Welcome unless empty.
    std::vector<std::string> peers;
  };
  // Called on the loop, except on_arrival.
  struct Events {
    // A stream is being opened; returns its first message.
    std::function<v1::Hello()> hello;
    std::function<void(const v1::Welcome&)> on_welcome;
    std::function<void(v1::CoordinatorMessage)> on_message;
    // The coordinator has acknowledged the Hello or a heartbeat. Called after on_welcome.
    std::function<void(const Acknowledgement&)> on_acknowledged = [](const Acknowledgement&) {};
    // A stream broke after its Welcome. The session reconnects by itself.
    std::function<void(const absl::Status&)> on_lost;
    // The coordinator will never accept this worker: FAILED_PRECONDITION for another protocol
    // version, UNAUTHENTICATED or PERMISSION_DENIED for its credentials, unless they were accepted
    // before. The session does not reconnect.
    std::function<void(const absl::Status&)> on_refused;
    // Returns whether the session must keep trying nevertheless, because ranks still run.
    // Optional.
    std::function<bool(const absl::Status&)> retries_refused = nullptr;
    std::function<void(const v1::HeartbeatAck&)> on_heartbeat_ack = nullptr;  // optional
    // A directive to stop has arrived, or the acknowledgement of a heartbeat that was sent at
    // `sent` (BootNow), which the loop will handle later. Called on a thread of gRPC, in the order
    // of the stream; must not block. Optional.
    std::function<void(const v1::CoordinatorMessage&, SteadyTime sent)> on_arrival = nullptr;
  };

  // Connects to `coordinator`, HOST:PORT, with the credentials of `security`. Loop and board must
  // outlive the session, and the loop must run until the session is destroyed.
  Session(std::string coordinator, EventLoop& loop, ProgressBoard& board, Events events,
          security::ClientSecurity security = {});
  // Sends the queued messages if the coordinator accepts them within a second, then closes the
  // stream.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Drops the message before the stream's Welcome: the next Hello contains the full state.
  void Send(v1::WorkerMessage message);
  // Breaks the stream; a new one is opened with a new Hello.
  void Reconnect();

 private:
  class Stream;

  // Called on a thread of gRPC.
  void OnArrival(const Stream* stream, const v1::CoordinatorMessage& message)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Called on the loop.
  void Open();
  void OnMessage(const Stream* stream, v1::CoordinatorMessage message);
  void OnAck(const v1::HeartbeatAck& ack);
  void OnDone(const Stream* stream, const absl::Status& status);
  // Reports a refusal that is final; returns false if it is not.
  bool EndRefused(const absl::Status& status);
  absl::Duration NextDelay();

  void HeartbeatLoop();
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string coordinator_;
  const security::ClientSecurity security_;
  EventLoop& loop_;
  ProgressBoard& board_;
  const Events events_;

  // Used on the loop only.
  bool welcomed_ = false;
  bool ever_welcomed_ = false;
  int refusals_ = 0;
  int failures_ = 0;
  std::optional<EventLoop::TimerId> next_attempt_;
  absl::BitGen random_;
  std::string last_error_;
  SteadyTime hello_sent_;
  std::string address_;  // of the coordinator that sent the latest Welcome

  absl::Mutex mutex_;
  SteadyCondVar changed_;  // stopping_, just_welcomed_ or closed_ has been set
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool beating_ ABSL_GUARDED_BY(mutex_) = false;
  bool just_welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = true;
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  // When the heartbeats of this stream that are not yet acknowledged were sent, by sequence.
  std::map<uint64_t, SteadyTime> sent_ ABSL_GUARDED_BY(mutex_);
  absl::Duration interval_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1);
  absl::Duration lease_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(10);

  std::thread heartbeat_thread_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SESSION_SESSION_H_
