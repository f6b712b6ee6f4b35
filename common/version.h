// Version numbers of this build.
#ifndef MUSTER_COMMON_VERSION_H_
#define MUSTER_COMMON_VERSION_H_

#include <cstdint>

namespace muster {

inline constexpr char kSoftwareVersion[] = "0.1.0";
// Version of the protocol in proto/muster/v1; peers with another version are rejected.
inline constexpr uint32_t kProtocolVersion = 1;
// Version of the coordinator's store schema; an older store is migrated, a newer one is rejected.
inline constexpr uint32_t kSchemaVersion = 3;

}  // namespace muster

#endif  // MUSTER_COMMON_VERSION_H_
