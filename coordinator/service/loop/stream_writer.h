// The writing side of a server stream that has one message in flight.
#ifndef MUSTER_COORDINATOR_SERVICE_LOOP_STREAM_WRITER_H_
#define MUSTER_COORDINATOR_SERVICE_LOOP_STREAM_WRITER_H_

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "common/grpc/status.h"

namespace muster::service {

// Finishes the stream after the write in progress, as gRPC requires. Not thread-safe: guarded by
// the mutex of the stream's owner.
template <typename Message, typename Reactor>
class StreamWriter {
 public:
  explicit StreamWriter(Reactor& reactor) : reactor_(reactor) {}

  // Dropped if a write is in progress or the stream is ending.
  void Write(Message message) {
    if (busy_ || end_.has_value()) return;
    message_ = std::move(message);
    busy_ = true;
    reactor_.StartWrite(&message_);
  }
  // Returns whether the stream continues.
  bool OnWriteDone(bool ok) {
    busy_ = false;
    if (end_.has_value()) reactor_.Finish(ToGrpcStatus(*end_));
    return ok && !end_.has_value();
  }
  // Returns false, without effect, if the stream is already ending.
  bool End(absl::Status status) {
    if (end_.has_value()) return false;
    end_ = std::move(status);
    if (!busy_) reactor_.Finish(ToGrpcStatus(*end_));
    return true;
  }
  bool ending() const { return end_.has_value(); }

 private:
  Reactor& reactor_;
  Message message_;
  bool busy_ = false;
  std::optional<absl::Status> end_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_LOOP_STREAM_WRITER_H_
