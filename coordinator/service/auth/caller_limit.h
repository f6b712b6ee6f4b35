// Bounds the streams that one caller may have open, so that no caller exhausts the coordinator's
// limits for all.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_CALLER_LIMIT_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_CALLER_LIMIT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/core/actor.h"

namespace muster::service {

// A caller whose stream has been counted; no longer counted when the last copy is destroyed.
struct AdmittedCaller {
  core::Actor actor;
  std::shared_ptr<const void> slot;
};

// Callers are identified by the names of their tokens; those without a name share one limit.
// Thread-safe.
class CallerLimit {
 public:
  // `what` names the streams in errors.
  CallerLimit(std::string what, size_t max) : what_(std::move(what)), max_(max) {}

  // Errors: RESOURCE_EXHAUSTED beyond the limit.
  absl::StatusOr<AdmittedCaller> Admit(core::Actor actor) {
    absl::MutexLock lock(&open_->mutex);
    size_t& count = open_->by_caller[actor.name];
    if (count >= max_) {
      return absl::ResourceExhaustedError(absl::StrCat(
          actor.name.empty() ? "the caller" : actor.name, " has ", count, " open ", what_,
          ", the limit for one caller; close some, or request fewer at the same time"));
    }
    ++count;
    std::shared_ptr<const void> slot(open_.get(), [open = open_, name = actor.name](const void*) {
      absl::MutexLock lock(&open->mutex);
      const auto entry = open->by_caller.find(name);
      if (--entry->second == 0) open->by_caller.erase(entry);
    });
    return AdmittedCaller{std::move(actor), std::move(slot)};
  }

 private:
  // Shared with the slots, which may outlive this object.
  struct Open {
    absl::Mutex mutex;
    absl::flat_hash_map<std::string, size_t> by_caller ABSL_GUARDED_BY(mutex);
  };

  const std::string what_;
  const size_t max_;
  const std::shared_ptr<Open> open_ = std::make_shared<Open>();
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_CALLER_LIMIT_H_
