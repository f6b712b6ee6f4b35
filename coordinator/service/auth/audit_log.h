// The audit log: a line of JSON for each call that changes something, in files of bounded size.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_AUDIT_LOG_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_AUDIT_LOG_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/security/private_file.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/registry.h"

namespace muster::service {

// A call and its outcome. Empty texts are left out of the line.
struct AuditEntry {
  std::string user;
  std::string role;
  std::string peer;
  std::string method;
  std::string object_kind;
  std::string object;
  std::string idempotency_key;
  absl::Status status;
};

// Appends to PATH (mode 0600). A file that is full becomes PATH.1, PATH.1 becomes PATH.2, and so
// on; the oldest is deleted. An entry that cannot be written is counted and dropped, because a full
// disk must not stop the service.
//
// Thread-safe.
class AuditLog {
 public:
  struct Options {
    std::string path;  // empty: no log
    uint64_t file_bytes = 16 << 20;
    int files = 8;  // including PATH
    // Entries are lost rather than written to the last space of the disk, which the coordinator's
    // state needs.
    uint64_t reserved_bytes = 16 << 20;
    std::function<Time()> clock = Now;
  };

  // `registry` must outlive the log.
  AuditLog(Options options, prometheus::Registry& registry);

  // Unauthenticated calls, which anybody can make, are limited to a burst of 60 and then one per
  // second. The next one that is recorded has the number of those that were left out.
  void Append(const AuditEntry& entry) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Whether an unauthenticated call is within the limit.
  bool TakeUnauthenticated(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(absl::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Rotate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  prometheus::Counter& failures_;
  absl::Mutex mutex_;
  security::OwnedFd file_ ABSL_GUARDED_BY(mutex_);
  uint64_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  double unauthenticated_ ABSL_GUARDED_BY(mutex_);
  SteadyTime refilled_ ABSL_GUARDED_BY(mutex_);
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_AUDIT_LOG_H_
