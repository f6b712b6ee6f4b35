// Tracks calls that are not allowed while a device captures a graph.
#ifndef MUSTER_KERNELS_CAPTURE_H_
#define MUSTER_KERNELS_CAPTURE_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace muster::kernels {

// Not thread-safe.
class Capture {
 public:
  bool active() const { return active_; }
  void Start() {
    active_ = true;
    refused_ = absl::OkStatus();
  }
  // Ends the capture; returns an error for the first call that was rejected.
  absl::Status Finish() {
    active_ = false;
    return refused_;
  }
  // Whether `call` (its name for messages) is not allowed now.
  bool Refuses(const char* call) {
    if (active_ && refused_.ok()) {
      refused_ =
          absl::FailedPreconditionError(absl::StrCat(call, " cannot be captured in a graph"));
    }
    return active_;
  }

 private:
  bool active_ = false;
  absl::Status refused_;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CAPTURE_H_
