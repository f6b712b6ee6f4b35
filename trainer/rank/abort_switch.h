// Lets the control plane thread abort operations that the training thread waits for.
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
  // Aborts all attached communicators, and those attached later. Only the first reason is kept.
  void Abort(const absl::Status& reason) {
    absl::MutexLock lock(&mutex_);
    if (reason_.ok()) reason_ = reason;
    for (collectives::Communicator* communicator : communicators_) communicator->Abort(reason_);
  }

  // `communicator` must live until Detach.
  void Attach(collectives::Communicator* communicator) {
    absl::MutexLock lock(&mutex_);
    communicators_.push_back(communicator);
    if (!reason_.ok()) communicator->Abort(reason_);
  }

  // Detaches all communicators.
  void Detach() {
    absl::MutexLock lock(&mutex_);
    communicators_.clear();
  }

  // Reason of the first Abort; OK before it.
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
