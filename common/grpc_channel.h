// How every program of Muster opens a channel: one place for bounds, and for credentials.
#ifndef MUSTER_COMMON_GRPC_CHANNEL_H_
#define MUSTER_COMMON_GRPC_CHANNEL_H_

#include <memory>
#include <string>

#include "common/limits.h"
#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace muster {

// `arguments` are the caller's own; the bounds on messages are added to them. A proxy in the
// environment is not used: whom a daemon talks to is said by its flags alone.
inline std::shared_ptr<grpc::Channel> OpenChannel(const std::string& target,
                                                  grpc::ChannelArguments arguments) {
  arguments.SetMaxReceiveMessageSize(limits::kMessageBytes);
  arguments.SetMaxSendMessageSize(limits::kMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace muster

#endif  // MUSTER_COMMON_GRPC_CHANNEL_H_
