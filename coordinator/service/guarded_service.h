// A gRPC service behind the authorizer: no call of it reaches the service unchecked.
#ifndef MUSTER_COORDINATOR_SERVICE_GUARDED_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_GUARDED_SERVICE_H_

#include <deque>
#include <string>

#include "coordinator/service/authorizer.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/impl/service_type.h"

namespace muster::service {

// Registered with a server in place of `service`, has all of its methods, unary and streams, those
// included that are added to its proto later, and hands on what the authorizer lets pass. A request
// is parsed only then. (gRPC's interceptors can watch a call but not refuse one, and its
// credentials check tokens only under TLS. So this stands where generated code does: between the
// server and the method handlers.)
class GuardedService final : public grpc::Service {
 public:
  // `service` is a callback service of `descriptor`; both it and `authorizer` outlive this.
  GuardedService(const google::protobuf::ServiceDescriptor& descriptor, grpc::Service& service,
                 Authorizer& authorizer);

 private:
  std::deque<std::string> names_;  // gRPC keeps pointers into them
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_GUARDED_SERVICE_H_
