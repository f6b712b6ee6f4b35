#include "worker/agent/session/coordinator_channel.h"

#include <utility>

#include "common/grpc/channel.h"
#include "grpcpp/support/channel_arguments.h"

namespace muster::agent {

std::shared_ptr<grpc::Channel> OpenCoordinatorChannel(const std::string& address,
                                                      const security::ClientSecurity& security) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The session retries by itself.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return OpenChannel(address, std::move(arguments), security);
}

}  // namespace muster::agent
