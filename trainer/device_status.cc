#include "trainer/device_status.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/out_of_memory.h"
#include "trainer/exit_code.h"

namespace muster::train {

absl::Status WithDeviceExitCode(const absl::Status& status) {
  const bool of_device =
      absl::IsNotFound(status) || absl::IsUnavailable(status) || absl::IsInternal(status);
  return of_device ? WithExitCode(status, kExitNoDevice) : status;
}

absl::Status WithMemoryAdvice(const absl::Status& status) {
  if (!kernels::IsOutOfMemory(status)) return status;
  absl::Status advised(
      status.code(),
      absl::StrCat(status.message(),
                   "; use a smaller train.global_batch or more train.accumulation_steps"));
  status.ForEachPayload([&advised](absl::string_view type, const absl::Cord& payload) {
    advised.SetPayload(type, payload);
  });
  return advised;
}

}  // namespace muster::train
