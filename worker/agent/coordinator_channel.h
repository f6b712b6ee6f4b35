// How a worker reaches its coordinator.
#ifndef MUSTER_WORKER_AGENT_COORDINATOR_CHANNEL_H_
#define MUSTER_WORKER_AGENT_COORDINATOR_CHANNEL_H_

#include <memory>
#include <string>

#include "common/security/client_security.h"
#include "grpcpp/channel.h"

namespace muster::agent {

// A connection of its own for each channel, so that what travels on one never delays another.
std::shared_ptr<grpc::Channel> OpenCoordinatorChannel(const std::string& address,
                                                      const security::ClientSecurity& security);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_COORDINATOR_CHANNEL_H_
