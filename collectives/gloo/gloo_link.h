// A TCP connection to one peer, using Gloo's transport.
#ifndef MUSTER_COLLECTIVES_GLOO_GLOO_LINK_H_
#define MUSTER_COLLECTIVES_GLOO_GLOO_LINK_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace gloo::transport {
class Context;
class Device;
class UnboundBuffer;
}  // namespace gloo::transport

namespace muster::collectives {

// Slot reserved by GlooLink; Send and Receive must not use it.
inline constexpr uint64_t kReservedSlot = std::numeric_limits<uint64_t>::max();

// Creates the Gloo device, whose thread performs the I/O of all links. `address` is numeric. Sets
// SIGPIPE to ignored unless the process handles it.
absl::StatusOr<std::shared_ptr<gloo::transport::Device>> CreateGlooDevice(
    const std::string& address);

// Uses one Gloo context per peer, because Gloo closes a whole context when one of its waits times
// out, and does not allow adding pairs to a context in use. Throws no exceptions. Thread-safe.
class GlooLink {
 public:
  // Opens a listening socket on a port that the kernel chooses.
  static absl::StatusOr<std::unique_ptr<GlooLink>> Listen(
      const std::shared_ptr<gloo::transport::Device>& device, absl::Duration connect_timeout);
  ~GlooLink();

  // "ADDRESS PORT", for the peer's Connect.
  absl::StatusOr<std::string> Address() const;

  // Blocks until both sides have connected or Close is called. Called once. UNAVAILABLE.
  absl::Status Connect(absl::string_view peer_address);

  // Resets the connection, which ends all pending messages here and at the peer.
  void Close();

  // Returns an endpoint for Send and Receive. Its waits throw when the connection breaks. It must
  // outlive its messages unless the link is closed.
  std::unique_ptr<gloo::transport::UnboundBuffer> TakeEndpoint();
  // Keeps `endpoint` for a later TakeEndpoint. All of its messages must be complete.
  void ReturnEndpoint(std::unique_ptr<gloo::transport::UnboundBuffer> endpoint);

  // Messages of a slot arrive in the order sent. Never blocks. UNAVAILABLE: the connection is
  // closed.
  absl::Status Send(gloo::transport::UnboundBuffer* endpoint, uint64_t slot, const void* data,
                    size_t size_bytes);
  absl::Status Receive(gloo::transport::UnboundBuffer* endpoint, uint64_t slot, void* data,
                       size_t size_bytes);

 private:
  explicit GlooLink(std::shared_ptr<gloo::transport::Context> context);

  const std::shared_ptr<gloo::transport::Context> context_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> idle_endpoints_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_GLOO_GLOO_LINK_H_
