// Purposes of random numbers in this folder; each derives its own Philox key from the job's seed.
#ifndef MUSTER_TRAINER_DATA_PURPOSE_H_
#define MUSTER_TRAINER_DATA_PURPOSE_H_

#include <cstdint>

namespace muster::data {

// Eight letters read as a number, so that they cannot collide with the small integers used
// elsewhere. Further views of a sample use the numbers that follow.
inline constexpr uint64_t kOrderPurpose = 0x7370'6c6f'7264'6572;    // "splorder"
inline constexpr uint64_t kAugmentPurpose = 0x6175'676d'656e'7421;  // "augment!"
inline constexpr uint64_t kCropPurpose = 0x6372'6f70'6172'6561;     // "croparea"
inline constexpr uint64_t kErasePurpose = 0x6572'6173'6572'6374;    // "eraserct"

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_PURPOSE_H_
