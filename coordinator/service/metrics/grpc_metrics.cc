#include "coordinator/service/metrics/grpc_metrics.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "coordinator/metric_families.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/identity.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {
namespace {

using ::grpc::experimental::InterceptionHookPoints;

constexpr const metrics::Family& kHandled = CoordinatorFamily("grpc_server_handled_total");
constexpr const metrics::Family& kHandling = CoordinatorFamily("grpc_server_handling_seconds");

// Lives as long as its call.
class CallTimer final : public grpc::experimental::Interceptor {
 public:
  CallTimer(GrpcMetrics& metrics, const char* method)
      : metrics_(metrics), method_(method), start_(Now().steady) {}
  ~CallTimer() override { metrics_.Handled(method_, code_, Now().steady - start_); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      code_ = methods->GetSendStatus().error_code();
    }
    methods->Proceed();
  }

 private:
  GrpcMetrics& metrics_;
  const std::string method_;
  const SteadyTime start_;
  grpc::StatusCode code_ = grpc::StatusCode::CANCELLED;
};

}  // namespace

GrpcMetrics::GrpcMetrics(prometheus::Registry& registry)
    : handled_(prometheus::BuildCounter()
                   .Name(std::string(kHandled.name))
                   .Help(kHandled.help)
                   .Register(registry)),
      handling_(prometheus::BuildHistogram()
                    .Name(std::string(kHandling.name))
                    .Help(kHandling.help)
                    .Register(registry)) {
  for (const auto* file :
       {v1::SubmitJobRequest::descriptor()->file(), v1::WorkerMessage::descriptor()->file(),
        v1::EnrollNodeRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const google::protobuf::ServiceDescriptor* service = file->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        const std::string& method = service->method(j)->name();
        methods_[absl::StrCat("/", service->full_name(), "/", method)] = {service->full_name(),
                                                                          method};
      }
    }
  }
}

grpc::experimental::Interceptor* GrpcMetrics::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  return new CallTimer(*this, info->method() == nullptr ? "" : info->method());
}

void GrpcMetrics::Handled(const std::string& full_method, grpc::StatusCode code,
                          absl::Duration duration) {
  static const Names unknown = {"unknown", "unknown"};
  const auto it = methods_.find(full_method);
  const Names& names = it == methods_.end() ? unknown : it->second;
  const std::string code_name = absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
  const prometheus::Labels labels = {{"grpc_service", names.service},
                                     {"grpc_method", names.method}};
  prometheus::Labels with_code = labels;
  with_code["grpc_code"] = code_name;
  handled_.Add(with_code).Increment();
  handling_
      .Add(labels, prometheus::Histogram::BucketBoundaries{0.0005, 0.001, 0.0025, 0.005, 0.01,
                                                           0.025, 0.1, 0.5, 1, 5, 30, 300, 3600})
      .Observe(absl::ToDoubleSeconds(duration));
}

}  // namespace muster::service
