// How every program of Muster opens a channel: one place for bounds, credentials and what each call
// carries.
#ifndef MUSTER_COMMON_GRPC_CHANNEL_H_
#define MUSTER_COMMON_GRPC_CHANNEL_H_

#include <memory>
#include <string>

#include "common/security/client_security.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/channel_arguments.h"

namespace muster {

// `arguments` are the caller's own; the bounds on messages are added to them. A proxy in the
// environment is not used: whom a daemon talks to is said by its flags alone. Every call carries
// the program's versions and, where one is found when the call starts, a token. The
// files of `security` are read now: a new channel takes new certificates.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& target,
                                           grpc::ChannelArguments arguments,
                                           const security::ClientSecurity& security = {});

}  // namespace muster

#endif  // MUSTER_COMMON_GRPC_CHANNEL_H_
