// What a device that records calls refuses meanwhile.
#ifndef MUSTER_KERNELS_CAPTURE_H_
#define MUSTER_KERNELS_CAPTURE_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace muster::kernels {

// For one thread.
class Capture {
 public:
  bool active() const { return active_; }
  void Start() {
    active_ = true;
    refused_ = absl::OkStatus();
  }
  // The first thing that was refused.
  absl::Status Finish() {
    active_ = false;
    return refused_;
  }
  // Whether the call, of this name, must not happen now.
  bool Refuses(const char* call) {
    if (active_ && refused_.ok()) {
      refused_ = absl::FailedPreconditionError(
          absl::StrCat(call, " cannot be a part of calls that are recorded"));
    }
    return active_;
  }

 private:
  bool active_ = false;
  absl::Status refused_;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CAPTURE_H_
