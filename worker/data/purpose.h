// The purposes under a job's seed that this folder draws random numbers for; each has a Philox key
// of its own.
#ifndef MUSTER_WORKER_DATA_PURPOSE_H_
#define MUSTER_WORKER_DATA_PURPOSE_H_

#include <cstdint>

namespace muster::data {

// Eight letters each, read as a number, so that they collide with nobody's small integers.
inline constexpr uint64_t kOrderPurpose = 0x7370'6c6f'7264'6572;    // "splorder"
inline constexpr uint64_t kAugmentPurpose = 0x6175'676d'656e'7421;  // "augment!"

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_PURPOSE_H_
