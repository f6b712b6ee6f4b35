// A group's links, connected when they are first needed, and waits on them that can be interrupted.
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

namespace muster::collectives {

// Memory of this rank bound to one peer's link: a run of messages sent from it, or received into
// it.
class GlooBuffer;

// Thread-safe.
//
// Only the neighbours of a dead rank see its connection break; they then close theirs, and so on
// around the group. So that everybody names the rank that really was lost, each rank that gives up
// writes into the group's store whom it blames, and who loses a peer asks there whether that one
// blames yet another.
class GlooTransport {
 public:
  static absl::StatusOr<std::unique_ptr<GlooTransport>> Create(const GroupOptions& options);
  // All buffers are gone by now.
  ~GlooTransport();

  // Connects to those of `peers` that are not connected yet, each of which must do the same.
  // UNAVAILABLE names the peer, DEADLINE_EXCEEDED all that did not come.
  absl::Status Connect(std::vector<uint32_t> peers);

  // Connect(peer) has returned OK.
  std::unique_ptr<GlooBuffer> Buffer(uint32_t peer, void* data);

  // Ends all waits, now and later, closes all links, and leaves word of whom `failure` blames.
  // Never blocks.
  void Interrupt(const absl::Status& failure);

 private:
  friend class GlooBuffer;
  enum class Verdict { kLost, kTimedOut };
  enum class Search { kOpen, kDone };  // for the rank that really was lost

  explicit GlooTransport(const GroupOptions& options) : options_(options) {}

  // Until options_.send_limit lets this much leave. ABORTED when interrupted.
  absl::Status AwaitTurn(size_t size_bytes);
  absl::Status ConnectOne(uint32_t peer, GlooLink* link);
  absl::StatusOr<std::string> PeerAddress(uint32_t peer);
  // The status of an operation with `peer` that failed.
  absl::Status Failure(uint32_t peer, Verdict verdict, absl::string_view what);
  uint32_t FindCulprit(uint32_t job_rank);
  bool interrupted() const;
  // A thread for what may block while the transport fails.
  Lane& Background() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveWord(uint32_t blamed, Search search) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CloseLinks();

  const GroupOptions options_;
  std::shared_ptr<gloo::transport::Device> device_;

  mutable absl::Mutex mutex_;
  absl::CondVar connected_;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_word_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint32_t, std::unique_ptr<GlooLink>> links_ ABSL_GUARDED_BY(mutex_);  // by peer
  std::set<uint32_t> ready_ ABSL_GUARDED_BY(mutex_);  // those of links_ that are connected
  std::set<GlooBuffer*> waiting_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Lane> background_ ABSL_GUARDED_BY(mutex_);
};

// One run of messages, one thread.
class GlooBuffer {
 public:
  GlooBuffer(GlooTransport* transport, GlooLink* link, uint32_t peer, void* data);
  ~GlooBuffer();

  // Starts a message of this range; none where it is empty. Waits only for a limit on the rate.
  absl::Status Send(uint64_t slot, size_t offset, size_t size_bytes);
  absl::Status Receive(uint64_t slot, size_t offset, size_t size_bytes);

  // Waits for the next message received, in the order of Receive.
  absl::Status AwaitReceived();
  // Waits until everything sent has left the memory.
  absl::Status AwaitAllSent();

  // From any thread: ends the wait under way, or the next.
  void Interrupt();

 private:
  absl::Status Await(bool receive);

  GlooTransport* const transport_;
  GlooLink* const link_;
  const uint32_t peer_;
  std::byte* const data_;
  // Messages that are not known to be complete.
  size_t sends_ = 0;
  size_t receives_ = 0;
  std::unique_ptr<gloo::transport::UnboundBuffer> endpoint_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_GLOO_GLOO_TRANSPORT_H_
