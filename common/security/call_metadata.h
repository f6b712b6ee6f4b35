// What every call carries beside its message.
#ifndef MUSTER_COMMON_SECURITY_CALL_METADATA_H_
#define MUSTER_COMMON_SECURITY_CALL_METADATA_H_

namespace muster::security {

// "Bearer TOKEN".
inline constexpr char kTokenKey[] = "authorization";
inline constexpr char kTokenPrefix[] = "Bearer ";
// Of the calling program; other clients (grpcurl) leave them out.
inline constexpr char kProtocolVersionKey[] = "muster-protocol-version";
inline constexpr char kSoftwareVersionKey[] = "muster-software-version";

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_CALL_METADATA_H_
