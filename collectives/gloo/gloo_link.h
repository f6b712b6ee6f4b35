// One TCP connection to one peer, by Gloo's transport.
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

// The slot that Send and Receive of a GlooLink must not use.
inline constexpr uint64_t kReservedSlot = std::numeric_limits<uint64_t>::max();

// The thread that moves the bytes of all links. `address` is numeric. The process ignores SIGPIPE
// from now on, unless it handles it.
absl::StatusOr<std::shared_ptr<gloo::transport::Device>> CreateGlooDevice(
    const std::string& address);

// A Gloo context of its own for each peer, because Gloo ends a whole context when one wait in it
// times out, and does not let pairs be added to one in use. No exception leaves this class.
// Thread-safe.
class GlooLink {
 public:
  // Opens a listening socket on a port of the kernel's choice.
  static absl::StatusOr<std::unique_ptr<GlooLink>> Listen(
      const std::shared_ptr<gloo::transport::Device>& device, absl::Duration connect_timeout);
  ~GlooLink();

  // "ADDRESS PORT", for the peer's Connect.
  absl::StatusOr<std::string> Address() const;

  // Blocks until both sides have connected; Close ends it. Called once. UNAVAILABLE.
  absl::Status Connect(absl::string_view peer_address);

  // Resets the connection: everything under way on it, here and at the peer, ends.
  void Close();

  // Returns an endpoint for Send and Receive. Its waits throw when the connection breaks. It must
  // outlive its messages, unless the link is closed.
  std::unique_ptr<gloo::transport::UnboundBuffer> TakeEndpoint();
  // Keeps `endpoint` for a later TakeEndpoint. All of its messages are complete.
  void ReturnEndpoint(std::unique_ptr<gloo::transport::UnboundBuffer> endpoint);

  // Messages of a slot arrive in the order of sending. Never blocks. UNAVAILABLE: the connection is
  // gone.
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
