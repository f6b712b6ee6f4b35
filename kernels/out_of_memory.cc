#include "kernels/out_of_memory.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace muster::kernels {
namespace {

constexpr char kPayload[] = "muster/out-of-memory";

}  // namespace

absl::Status OutOfMemoryError(absl::string_view device, absl::string_view use, size_t bytes,
                              size_t free_bytes, absl::string_view cause) {
  const std::string wanted = bytes == 0 ? "memory" : absl::StrCat(bytes, " bytes");
  const std::string left = free_bytes == 0 ? "" : absl::StrCat(", ", free_bytes, " bytes are free");
  absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
      device, ": out of memory: cannot allocate ", wanted, " for ", use, left, ": ", cause));
  status.SetPayload(kPayload, absl::Cord());
  return status;
}

bool IsOutOfMemory(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

}  // namespace muster::kernels
