// Opens the gRPC channels of all of Muster's programs, with message size limits, credentials and
// per-call metadata.
#ifndef MUSTER_COMMON_GRPC_CHANNEL_H_
#define MUSTER_COMMON_GRPC_CHANNEL_H_

#include <memory>
#include <string>

#include "common/security/client_security.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/channel_arguments.h"

namespace muster {

// Opens a channel to `target` with the caller's `arguments` plus the message size limits. Proxies
// from the environment are ignored: flags alone determine the peer of a daemon. Every call carries
// the program's versions and a token, if one is found when the call starts. The TLS files of
// `security` are read once, here: a new channel is required to use renewed certificates.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& target,
                                           grpc::ChannelArguments arguments,
                                           const security::ClientSecurity& security = {});

}  // namespace muster

#endif  // MUSTER_COMMON_GRPC_CHANNEL_H_
