#include "coordinator/service/guarded_service.h"

#include <glog/logging.h>
#include <grpc/byte_buffer.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "coordinator/service/caller.h"

namespace muster::service {
namespace {

using ::google::protobuf::MethodDescriptor;
using ::grpc::internal::MethodHandler;
using ::grpc::internal::RpcMethod;
using ::grpc::internal::RpcServiceMethod;

// Rate limit, so that a peer cannot fill the disk with log lines.
constexpr int kSecondsBetweenLogLines = 5;

// A call that only ends with a status.
class Refusal final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

// Ends a call of any method kind with `status`: on the wire, all kinds end in the same way.
void Refuse(const MethodHandler::HandlerParameter& call, const absl::Status& status) {
  grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer> handler(
      [&status](grpc::CallbackServerContext*) { return new Refusal(status); });
  handler.RunHandler(call);
}

class GuardedHandler final : public MethodHandler {
 public:
  GuardedHandler(MethodHandler& handler, const MethodDescriptor& method, std::string name,
                 Authorizer& authorizer)
      : handler_(handler), method_(method), name_(std::move(name)), authorizer_(authorizer) {}

  // Keeps the raw request; it is parsed after the call has been authorized.
  void* Deserialize(grpc_call* /*call*/, grpc_byte_buffer* request, grpc::Status* /*status*/,
                    void** /*handler_data*/) override {
    return request;
  }

  void RunHandler(const HandlerParameter& call) override {
    const auto& context = static_cast<const grpc::CallbackServerContext&>(*call.server_context);
    auto* raw_request = static_cast<grpc_byte_buffer*>(call.request);
    const absl::Status allowed = authorizer_.Check(name_, CallerOf(context));
    if (!allowed.ok()) {
      if (raw_request != nullptr) grpc_byte_buffer_destroy(raw_request);
      LOG_EVERY_T(WARNING, kSecondsBetweenLogLines) << "refused " << method_.name() << " from "
                                                    << context.peer() << ": " << allowed.message();
      return Refuse(call, allowed);
    }
    void* request = nullptr;
    void* handler_data = nullptr;
    grpc::Status parsed;
    if (!method_.client_streaming()) {
      request = handler_.Deserialize(call.call->call(), raw_request, &parsed, &handler_data);
    }
    // The handler answers requests that cannot be parsed with UNIMPLEMENTED, as gRPC always does.
    handler_.RunHandler(HandlerParameter(call.call, call.server_context, request, parsed,
                                         handler_data, call.call_requester));
  }

 private:
  MethodHandler& handler_;
  const MethodDescriptor& method_;
  const std::string name_;
  Authorizer& authorizer_;
};

RpcMethod::RpcType TypeOf(const MethodDescriptor& method) {
  if (method.client_streaming()) {
    return method.server_streaming() ? RpcMethod::BIDI_STREAMING : RpcMethod::CLIENT_STREAMING;
  }
  return method.server_streaming() ? RpcMethod::SERVER_STREAMING : RpcMethod::NORMAL_RPC;
}

// Gives access to a service's handlers, which gRPC exposes only to subclasses.
struct Handlers : grpc::Service {
  static MethodHandler& Of(grpc::Service& service, int index) {
    return *(service.*&Handlers::GetHandler)(index);
  }
};

}  // namespace

GuardedService::GuardedService(const google::protobuf::ServiceDescriptor& descriptor,
                               grpc::Service& service, Authorizer& authorizer) {
  // Generated code numbers methods in the order of the proto file.
  for (int i = 0; i < descriptor.method_count(); ++i) {
    const MethodDescriptor& method = *descriptor.method(i);
    names_.push_back(absl::StrCat("/", descriptor.full_name(), "/", method.name()));
    AddMethod(new RpcServiceMethod(names_.back().c_str(), TypeOf(method), nullptr));
    MarkMethodCallback(
        i, new GuardedHandler(Handlers::Of(service, i), method, names_.back(), authorizer));
  }
}

}  // namespace muster::service
