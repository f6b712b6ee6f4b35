// The TCP links of a group, connected on first use, with interruptible waits.
#ifndef MUSTER_COLLECTIVES_GLOO_GLOO_TRANSPORT_H_
#define MUSTER_COLLECTIVES_GLOO_GLOO_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "collectives/gloo/gloo_link.h"
#include "collectives/lane.h"
#include "common/time/steady_cond_var.h"

namespace muster::collectives {

// Memory of this rank bound to one peer's link, for a sequence of messages sent from it or received
// into it.
class GlooBuffer;

// Connects to peers on demand and identifies lost ranks. Thread-safe.
//
// Only the neighbours of a dead rank see its connection break; they then close theirs, and so on
// around the group. So that all ranks name the rank that was really lost, each rank that fails
// publishes in the group's store which rank it considers lost, and a rank that loses a peer checks
// there whether that peer names yet another.
class GlooTransport {
 public:
  static absl::StatusOr<std::unique_ptr<GlooTransport>> Create(const GroupOptions& options);
  // All buffers must have been destroyed.
  ~GlooTransport();

  // Connects to those of `peers` that are not connected yet, each of which must do the same.
  // UNAVAILABLE names the peer, DEADLINE_EXCEEDED all peers that did not connect.
  absl::Status Connect(std::vector<uint32_t> peers);

  // Requires that Connect(peer) has returned OK.
  std::unique_ptr<GlooBuffer> Buffer(uint32_t peer, void* data);

  // Ends all present and future waits, closes all links, and publishes the rank that `failure`
  // names. Never blocks.
  void Interrupt(const absl::Status& failure);

 private:
  friend class GlooBuffer;
  enum class Verdict { kLost, kTimedOut };
  enum class Search { kOpen, kDone };  // whether the rank that was really lost is known

  explicit GlooTransport(const GroupOptions& options) : options_(options) {}

  // Waits until options_.send_limit allows sending this many bytes. ABORTED when interrupted.
  absl::Status AwaitTurn(size_t size_bytes);
  absl::Status ConnectOne(uint32_t peer, GlooLink* link);
  absl::StatusOr<std::string> PeerAddress(uint32_t peer);
  // Returns the status of a failed operation with `peer`.
  absl::Status Failure(uint32_t peer, Verdict verdict, absl::string_view what);
  uint32_t FindLostRank(uint32_t job_rank);
  bool interrupted() const;
  // The thread for calls that may block while the transport fails.
  Lane& Background() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReportLostRank(uint32_t blamed, Search search) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseLinks();

  const GroupOptions options_;
  std::shared_ptr<gloo::transport::Device> device_;

  mutable absl::Mutex mutex_;
  SteadyCondVar connected_;  // or interrupted
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  bool reported_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint32_t, std::unique_ptr<GlooLink>> links_ ABSL_GUARDED_BY(mutex_);  // by peer
  std::set<uint32_t> ready_ ABSL_GUARDED_BY(mutex_);  // connected peers of links_
  std::set<GlooBuffer*> waiting_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Lane> background_ ABSL_GUARDED_BY(mutex_);
};

// A sequence of messages; used by one thread.
class GlooBuffer {
 public:
  GlooBuffer(GlooTransport* transport, GlooLink* link, uint32_t peer, void* data);
  ~GlooBuffer();

  // Starts a message of this range, unless it is empty. Waits only for the send limit.
  absl::Status Send(uint64_t slot, size_t offset, size_t size_bytes);
  absl::Status Receive(uint64_t slot, size_t offset, size_t size_bytes);

  // Waits for the next message received, in the order of Receive.
  absl::Status AwaitReceived();
  // Waits until all sends have completed, so that the memory may be reused.
  absl::Status AwaitAllSent();

  // Ends the current wait, or the next one. Any thread.
  void Interrupt();

 private:
  absl::Status Await(bool receive);

  GlooTransport* const transport_;
  GlooLink* const link_;
  const uint32_t peer_;
  std::byte* const data_;
  // Messages that are not known to have completed.
  size_t sends_ = 0;
  size_t receives_ = 0;
  std::unique_ptr<gloo::transport::UnboundBuffer> endpoint_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_GLOO_GLOO_TRANSPORT_H_
