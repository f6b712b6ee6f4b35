#include "coordinator/service/loop/absence.h"

#include <utility>

namespace muster::service {
namespace {

// Shorter delays are those that every loop has.
constexpr absl::Duration kShortest = absl::Milliseconds(200);
constexpr absl::Duration kCatchUp = absl::Seconds(2);
constexpr absl::Duration kCatchUpInterval = absl::Seconds(20);

}  // namespace

void AbsenceMeter::EndTurn(SteadyTime now, absl::Duration cpu, absl::Duration idle,
                           absl::Duration blocked) {
  const absl::Duration absent = now - last_ - (cpu - last_cpu_) - idle - blocked;
  if (absent >= kShortest) absent_ += absent;
  last_ = now;
  last_cpu_ = cpu;
}

absl::Duration AbsenceMeter::TakeExtension(SteadyTime now) {
  const absl::Duration absent = std::exchange(absent_, absl::ZeroDuration());
  if (absent == absl::ZeroDuration() || now < next_catch_up_) return absent;
  next_catch_up_ = now + kCatchUpInterval;
  return absent + kCatchUp;
}

}  // namespace muster::service
