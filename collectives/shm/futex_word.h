// A counter in memory shared by processes, with futex waits.
#ifndef MUSTER_COLLECTIVES_SHM_FUTEX_WORD_H_
#define MUSTER_COLLECTIVES_SHM_FUTEX_WORD_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace muster::collectives {

// Only its owner advances it; any process may wait on it. Zeroed memory is a valid word with value
// 0. Values wrap: differences between the words of a group stay far below 2^31.
class FutexWord {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }
  bool Reached(uint32_t target) const { return static_cast<int32_t>(value() - target) >= 0; }

  // Release: writes before this call are visible to any process that reads the new value.
  void Advance(uint32_t value);

  // Sleeps until woken, at most for `time`, unless the value differs from `seen`. May wake
  // spuriously.
  void Sleep(uint32_t seen, absl::Duration time);

  // Wakes all sleepers without changing the value.
  void Wake();

 private:
  // On separate cache lines: waiters must not slow the owner's stores to the value.
  alignas(64) std::atomic<uint32_t> value_;
  alignas(64) std::atomic<uint32_t> sleepers_;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SHM_FUTEX_WORD_H_
