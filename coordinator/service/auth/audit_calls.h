// Records the calls that the method table marks in the audit log.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_AUDIT_CALLS_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_AUDIT_CALLS_H_

#include "coordinator/service/auth/audit_log.h"
#include "coordinator/service/auth/authorizer.h"
#include "grpcpp/support/server_interceptor.h"

namespace muster::service {

// Writes the entry of a call before its caller receives the status. Only names are recorded: never
// a spec, an environment, a command, or the value of a secret or token. Must be the interceptor of
// a server whose services are GuardedServices. Thread-safe.
class AuditCalls : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  // Both must outlive the server.
  AuditCalls(AuditLog& log, Authorizer& authorizer) : log_(log), authorizer_(authorizer) {}

  // Null for a method whose calls are not recorded.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  AuditLog& log_;
  Authorizer& authorizer_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_AUDIT_CALLS_H_
