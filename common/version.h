// What this build calls itself.
#ifndef MUSTER_COMMON_VERSION_H_
#define MUSTER_COMMON_VERSION_H_

#include <cstdint>

namespace muster {

inline constexpr char kSoftwareVersion[] = "0.1.0";
// Of proto/muster/v1 between programs; another number is refused in words.
inline constexpr uint32_t kProtocolVersion = 1;
// Of the coordinator's store; an older one is migrated, a newer one refused.
inline constexpr uint32_t kSchemaVersion = 3;

}  // namespace muster

#endif  // MUSTER_COMMON_VERSION_H_
