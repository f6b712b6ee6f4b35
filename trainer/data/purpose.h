// The purposes under a job's seed that this folder draws random numbers for; each has a Philox key
// of its own.
#ifndef MUSTER_TRAINER_DATA_PURPOSE_H_
#define MUSTER_TRAINER_DATA_PURPOSE_H_

#include <cstdint>

namespace muster::data {

// Eight letters each, read as a number, so that they collide with nobody's small integers. A
// sample's further views take the numbers after them.
inline constexpr uint64_t kOrderPurpose = 0x7370'6c6f'7264'6572;    // "splorder"
inline constexpr uint64_t kAugmentPurpose = 0x6175'676d'656e'7421;  // "augment!"
inline constexpr uint64_t kCropPurpose = 0x6372'6f70'6172'6561;     // "croparea"
inline constexpr uint64_t kErasePurpose = 0x6572'6173'6572'6374;    // "eraserct"

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_PURPOSE_H_
