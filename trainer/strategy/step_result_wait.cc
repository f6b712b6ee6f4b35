#include "trainer/strategy/step_result_wait.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"

namespace muster::train {
namespace {

// Bounds of the pause between two polls.
constexpr absl::Duration kShortestPause = absl::Microseconds(20);
constexpr absl::Duration kLongestPause = absl::Milliseconds(1);

}  // namespace

absl::Status AwaitStepResult(absl::FunctionRef<bool()> known,
                             absl::FunctionRef<absl::Status()> status,
                             collectives::Communicator& devices, absl::Duration timeout,
                             uint64_t step) {
  const SteadyTime begin = Now().steady;
  while (!known()) {
    RETURN_IF_ERROR(status());
    const absl::Duration waited = Now().steady - begin;
    if (waited > timeout) {
      devices.Abort(absl::DeadlineExceededError(
          absl::StrCat("step ", step, " did not finish within ", absl::FormatDuration(timeout))));
      continue;
    }
    absl::SleepFor(std::clamp(waited / 16, kShortestPause, kLongestPause));
  }
  return absl::OkStatus();
}

}  // namespace muster::train
