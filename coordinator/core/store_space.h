// Free space on the disk of the store. Records that users add may not use the last part of it,
// which the coordinator needs to record running jobs.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_STORE_SPACE_H_
#define MUSTER_COORDINATOR_CORE_STORE_SPACE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/store/store.h"

namespace muster::core {

class StoreSpace {
 public:
  void Set(const store::Space& measured) { space_ = measured; }
  // RESOURCE_EXHAUSTED if records of `bytes` that a user adds would leave less than the reserve.
  absl::Status Check(uint64_t bytes) const {
    const uint64_t written = Written(bytes);
    if (space_.free_bytes >= written && space_.free_bytes - written >= space_.reserved_bytes) {
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "the disk of the coordinator's store has ", space_.free_bytes >> 10, " KiB free and ",
        written >> 10, " KiB are needed; the last ", space_.reserved_bytes >> 10,
        " KiB are kept for jobs that run; remove finished jobs with muster rm, or free space "
        "there"));
  }
  // Subtracts records that Check has allowed and that are now written.
  void Take(uint64_t bytes) { space_.free_bytes -= Written(bytes); }
  // Whether less than the reserve is left: only what running jobs need is written.
  bool IsLow() const { return space_.free_bytes < space_.reserved_bytes; }

 private:
  // SQLite writes a record to its log before it writes it to the database.
  static uint64_t Written(uint64_t bytes) { return 2 * bytes; }

  store::Space space_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_STORE_SPACE_H_
