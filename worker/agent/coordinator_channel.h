// Opens gRPC channels to the coordinator.
#ifndef MUSTER_WORKER_AGENT_COORDINATOR_CHANNEL_H_
#define MUSTER_WORKER_AGENT_COORDINATOR_CHANNEL_H_

#include <memory>
#include <string>

#include "common/security/client_security.h"
#include "grpcpp/channel.h"

namespace muster::agent {

// Each channel has its own connection, so that traffic on one does not delay another.
std::shared_ptr<grpc::Channel> OpenCoordinatorChannel(const std::string& address,
                                                      const security::ClientSecurity& security);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_COORDINATOR_CHANNEL_H_
