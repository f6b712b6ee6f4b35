// Busy-waits briefly without yielding the CPU.
#ifndef MUSTER_COLLECTIVES_SPIN_H_
#define MUSTER_COLLECTIVES_SPIN_H_

#include <immintrin.h>

#include <chrono>

#include "absl/time/time.h"

namespace muster::collectives {

// Returns whether the condition became true within `time`.
template <typename Condition>
bool SpinUntil(const Condition& condition, absl::Duration time) {
  if (condition()) return true;
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SPIN_H_
