#include "coordinator/service/grpc_server.h"

#include <glog/logging.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/grpc/deadline.h"
#include "common/grpc/log.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/service/auth/guarded_service.h"

namespace muster::service {
namespace {

// A connection whose peer stops responding is closed after the sum of the two. Peers may ping at
// the same rate.
constexpr int kKeepaliveTimeMs = 10000;
constexpr int kKeepaliveTimeoutMs = 10000;
constexpr int kLeastPingIntervalMs = 5000;

// Rate limit, so that a peer cannot fill the disk with log lines.
constexpr int kSecondsBetweenLogLines = 5;

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const std::string& address, const std::vector<Served>& services, Authorizer& authorizer,
    LiveCalls& live_calls, const security::TlsFiles& tls, security::ClientCertificates clients,
    GrpcListener::Interceptors interceptors) {
  auto server = absl::WrapUnique(new GrpcServer);
  RETURN_IF_ERROR(security::CheckTlsFiles(tls));
  ASSIGN_OR_RETURN(server->address_, ParseAddress(address));
  ASSIGN_OR_RETURN(server->listener_, GrpcListener::Open(server->address_));
  server->address_.port = server->listener_->port();
  server->listener_->SetUserTimeout(std::chrono::milliseconds(kKeepaliveTimeoutMs));

  // Mostly failed TLS handshakes.
  TakeGrpcLog([](const std::string& line) {
    LOG_EVERY_T(WARNING, kSecondsBetweenLogLines) << "gRPC: " << line;
  });
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  server->listener_->AddTo(builder, security::ServerCredentials(tls, clients),
                           std::move(interceptors));
  for (const Served& served : services) {
    server->guarded_.push_back(std::make_unique<GuardedService>(
        *google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(served.name),
        *served.service, authorizer, live_calls, *server->listener_));
    builder.RegisterService(server->guarded_.back().get());
  }
  builder.SetMaxReceiveMessageSize(limits::kMessageBytes);
  builder.SetMaxSendMessageSize(limits::kMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kLeastPingIntervalMs);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("listen on ", address, ": failed to start the gRPC server"));
  }
  server->listener_->Start();
  server->server_->GetHealthCheckService()->SetServingStatus(true);
  return server;
}

GrpcServer::~GrpcServer() { Shutdown(std::chrono::milliseconds(0)); }

void GrpcServer::Shutdown(std::chrono::milliseconds patience) {
  if (server_ == nullptr) return;
  listener_->Stop();
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(GrpcDeadline(absl::FromChrono(patience)));
  server_.reset();
}

}  // namespace muster::service
