#include "coordinator/core/store_space.h"

#include "absl/strings/str_cat.h"

namespace muster::core {

absl::Status StoreSpace::Check(uint64_t bytes) const {
  const uint64_t written = Written(bytes);
  if (space_.free_bytes >= written && space_.free_bytes - written >= space_.reserved_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the disk of the coordinator's store has ", space_.free_bytes >> 10, " KiB free and ",
      written >> 10, " KiB are needed; the last ", space_.reserved_bytes >> 10,
      " KiB are kept for jobs that run; remove finished jobs with muster rm, or free space there"));
}

}  // namespace muster::core
