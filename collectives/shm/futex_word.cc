#include "collectives/shm/futex_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace muster::collectives {

// The owner and a sleeper store and load value_ and sleepers_ in opposite orders, sequentially
// consistent, so at least one of them sees the other's store. A sleeper that is killed leaves the
// count too high, which costs an extra system call.

void FutexWord::Advance(uint32_t value) {
  value_.store(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) Wake();
}

void FutexWord::Sleep(uint32_t seen, absl::Duration time) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (value_.load(std::memory_order_seq_cst) == seen) {
    const timespec timeout = absl::ToTimespec(time);
    syscall(SYS_futex, &value_, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void FutexWord::Wake() { syscall(SYS_futex, &value_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace muster::collectives
