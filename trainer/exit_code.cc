#include "trainer/exit_code.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace muster::train {
namespace {

constexpr char kExitCodePayload[] = "muster/exit-code";

}  // namespace

absl::Status WithExitCode(const absl::Status& status, int exit_code) {
  if (status.ok() || status.GetPayload(kExitCodePayload).has_value()) return status;
  absl::Status with_code = status;
  with_code.SetPayload(kExitCodePayload, absl::Cord(absl::StrCat(exit_code)));
  return with_code;
}

int ExitCodeOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kExitCodePayload);
  int exit_code = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &exit_code)) {
    return kExitFailure;
  }
  return exit_code;
}

bool IsPermanent(int exit_code) {
  return exit_code == kExitDiverged || exit_code == kExitNoInput ||
         exit_code == kExitCannotCreate || exit_code == kExitBadSpec;
}

}  // namespace muster::train
