// Keys of the metadata that every call carries.
#ifndef MUSTER_COMMON_SECURITY_CALL_METADATA_H_
#define MUSTER_COMMON_SECURITY_CALL_METADATA_H_

namespace muster::security {

// Value: "Bearer TOKEN".
inline constexpr char kTokenKey[] = "authorization";
inline constexpr char kTokenPrefix[] = "Bearer ";
// Versions of the calling program; absent in calls of other clients, such as grpcurl.
// The oldest version that the client speaks, and the newest if it is another.
inline constexpr char kProtocolVersionKey[] = "muster-protocol-version";
inline constexpr char kNewestProtocolVersionKey[] = "muster-newest-protocol-version";
inline constexpr char kSoftwareVersionKey[] = "muster-software-version";

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_CALL_METADATA_H_
