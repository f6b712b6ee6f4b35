// The metrics grpc_server_handled_total and grpc_server_handling_seconds. They have the names that
// gRPC's other Prometheus integrations use, so that existing dashboards work.
#ifndef MUSTER_COORDINATOR_SERVICE_METRICS_GRPC_METRICS_H_
#define MUSTER_COORDINATOR_SERVICE_METRICS_GRPC_METRICS_H_

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "grpcpp/support/server_interceptor.h"
#include "grpcpp/support/status.h"
#include "prometheus/registry.h"

namespace muster::service {

// Counts all calls of the known services. A call of an unknown method counts under the method
// "unknown", so that clients cannot create series. Thread-safe.
class GrpcMetrics : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  // `registry` must outlive the server.
  explicit GrpcMetrics(prometheus::Registry& registry);

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

  void Handled(const std::string& full_method, grpc::StatusCode code, absl::Duration duration);

 private:
  struct Names {
    std::string service;
    std::string method;
  };
  absl::flat_hash_map<std::string, Names> methods_;  // keyed by "/package.Service/Method"
  prometheus::Family<prometheus::Counter>& handled_;
  prometheus::Family<prometheus::Histogram>& handling_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_METRICS_GRPC_METRICS_H_
