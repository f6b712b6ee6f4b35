// Version numbers of this build.
#ifndef MUSTER_COMMON_VERSION_H_
#define MUSTER_COMMON_VERSION_H_

#include <cstdint>

namespace muster {

inline constexpr char kSoftwareVersion[] = "0.1.0";
// Newest and oldest version of the protocol in proto/muster/v1 that this build speaks. Peers use
// the newest that both speak.
//   1  the first
//   2  identity of the store (cluster id, commit index), machine ids, JoinCluster
inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr uint32_t kOldestProtocolVersion = 1;

// Returns the version to use with a peer that speaks `oldest` to `newest` (0: only `oldest`), or 0
// if there is none.
constexpr uint32_t CommonProtocolVersion(uint32_t oldest, uint32_t newest) {
  const uint32_t common = newest < oldest ? oldest : newest;
  const uint32_t highest = common < kProtocolVersion ? common : kProtocolVersion;
  return highest >= oldest && highest >= kOldestProtocolVersion ? highest : 0;
}

}  // namespace muster

#endif  // MUSTER_COMMON_VERSION_H_
