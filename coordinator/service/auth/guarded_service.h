// A gRPC service that authorizes every call before it reaches the wrapped service.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_GUARDED_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_GUARDED_SERVICE_H_

#include <deque>
#include <string>

#include "common/grpc/listener.h"
#include "coordinator/service/auth/authorizer.h"
#include "coordinator/service/auth/caller_limit.h"
#include "coordinator/service/auth/live_calls.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/impl/service_type.h"

namespace muster::service {

// Registered with a server in place of `service`. It has all methods of the service, unary and
// streaming, including those added to its proto later, and forwards the calls that the authorizer
// allows. A request is parsed only after that; interceptors receive that of a method without a
// client stream as a grpc_byte_buffer. A caller has few large requests in progress. (gRPC's
// interceptors can observe a call but not refuse it, and its credentials check tokens only under
// TLS. The check is therefore placed where generated code is: between the server and the method
// handlers.)
class GuardedService final : public grpc::Service {
 public:
  // `service` is a callback service of `descriptor`. `listener` learns of the calls that are
  // allowed, and `live_calls` has the streams in progress. All of them must outlive this object.
  GuardedService(const google::protobuf::ServiceDescriptor& descriptor, grpc::Service& service,
                 Authorizer& authorizer, LiveCalls& live_calls, GrpcListener& listener);

 private:
  CallerLimit large_requests_;
  std::deque<std::string> names_;  // gRPC keeps pointers into them
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_GUARDED_SERVICE_H_
