// Reads a call's caller from its metadata and connection.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_CALLER_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_CALLER_H_

#include "coordinator/service/auth/authorizer.h"
#include "grpcpp/grpcpp.h"

namespace muster::service {

Authorizer::Caller CallerOf(const grpc::ServerContextBase& context);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_CALLER_H_
