// Lets the control plane's thread end what the training thread waits for.
#ifndef MUSTER_TRAINER_RANK_ABORT_SWITCH_H_
#define MUSTER_TRAINER_RANK_ABORT_SWITCH_H_

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "collectives/communicator.h"

namespace muster::rank {

// Thread-safe.
class AbortSwitch {
 public:
  // Aborts the attached communicators, and any that are attached later. The first reason counts.
  void Abort(const absl::Status& reason) {
    absl::MutexLock lock(&mutex_);
    if (reason_.ok()) reason_ = reason;
    for (collectives::Communicator* communicator : communicators_) communicator->Abort(reason_);
  }

  // The communicator lives until Detach.
  void Attach(collectives::Communicator* communicator) {
    absl::MutexLock lock(&mutex_);
    communicators_.push_back(communicator);
    if (!reason_.ok()) communicator->Abort(reason_);
  }

  // Of all that are attached.
  void Detach() {
    absl::MutexLock lock(&mutex_);
    communicators_.clear();
  }

  // OK as long as nobody aborted.
  absl::Status reason() const {
    absl::MutexLock lock(&mutex_);
    return reason_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  std::vector<collectives::Communicator*> communicators_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_ABORT_SWITCH_H_
