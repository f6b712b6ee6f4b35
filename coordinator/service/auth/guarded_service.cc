#include "coordinator/service/auth/guarded_service.h"

#include <glog/logging.h>
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/status.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/service/auth/access.h"
#include "coordinator/service/auth/caller.h"

namespace muster::service {
namespace {

using ::grpc::internal::MethodHandler;
using ::grpc::internal::RpcMethod;
using ::grpc::internal::RpcServiceMethod;

// Rate limit, so that a peer cannot fill the disk with log lines.
constexpr int kSecondsBetweenLogLines = 5;

// A large request may take thirty times its size in memory, and seconds of CPU time.
constexpr size_t kLargeRequestBytes = 128 << 10;
constexpr size_t kLargeRequestsPerCaller = 2;

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

// Whether the authorizer has checked the credentials of a call that it allowed.
bool Authenticates(absl::string_view method) {
  const MethodDescriptor* const found = FindMethod(method);
  return found == nullptr || AccessOf(*found).role() != v1::Access::ANYONE;
}

class GuardedHandler final : public MethodHandler {
 public:
  GuardedHandler(MethodHandler& handler, const MethodDescriptor& method, std::string name,
                 Authorizer& authorizer, CallerLimit& large_requests, LiveCalls& live_calls,
                 GrpcListener& listener)
      : handler_(handler),
        method_(method),
        name_(std::move(name)),
        authorizer_(authorizer),
        large_requests_(large_requests),
        live_calls_(live_calls),
        listener_(listener) {}

  // Keeps the raw request; it is parsed after the call has been authorized.
  void* Deserialize(grpc_call* /*call*/, grpc_byte_buffer* request, grpc::Status* /*status*/,
                    void** /*handler_data*/) override {
    return request;
  }

  void RunHandler(const HandlerParameter& call) override {
    const auto& context = static_cast<const grpc::CallbackServerContext&>(*call.server_context);
    auto* raw_request = static_cast<grpc_byte_buffer*>(call.request);
    Authorizer::Caller caller = CallerOf(context);
    const absl::Status allowed = authorizer_.Check(name_, caller);
    if (!allowed.ok()) {
      if (raw_request != nullptr) grpc_byte_buffer_destroy(raw_request);
      if (!listener_.WasLogged(context)) {
        LOG_EVERY_T(WARNING, kSecondsBetweenLogLines)
            << "refused " << method_.name() << " from " << context.peer() << ": "
            << allowed.message();
      }
      return Refuse(call, allowed);
    }
    if (Authenticates(name_)) listener_.OnAuthenticated(context);
    // Checked before it is parsed: many small values take thirty times their bytes in memory.
    const size_t bytes = raw_request == nullptr ? 0 : grpc_byte_buffer_length(raw_request);
    if (bytes > limits::kRequestBytes) {
      grpc_byte_buffer_destroy(raw_request);
      return Refuse(call, absl::ResourceExhaustedError(
                              absl::StrCat("the request of ", method_.name(), " has ", bytes,
                                           " bytes; the limit is ", limits::kRequestBytes)));
    }
    std::function<void()> on_done = call.call_requester;
    if (bytes > kLargeRequestBytes) {
      absl::StatusOr<AdmittedCaller> admitted = AdmitLarge(caller);
      if (!admitted.ok()) {
        grpc_byte_buffer_destroy(raw_request);
        return Refuse(call, admitted.status());
      }
      on_done = [slot = std::move(admitted->slot), on_done = std::move(on_done)] { on_done(); };
    }
    void* request = nullptr;
    void* handler_data = nullptr;
    grpc::Status parsed;
    if (!method_.client_streaming()) {
      request = handler_.Deserialize(call.call->call(), raw_request, &parsed, &handler_data);
    }
    if (method_.client_streaming() || method_.server_streaming()) {
      on_done = Watch(*call.call->call(), std::move(caller), std::move(on_done));
    }
    // The handler answers requests that cannot be parsed with UNIMPLEMENTED, as gRPC always does.
    handler_.RunHandler(HandlerParameter(call.call, call.server_context, request, parsed,
                                         handler_data, std::move(on_done)));
  }

 private:
  // UNAVAILABLE, upon which a client tries again, while the caller has as many as it may have.
  absl::StatusOr<AdmittedCaller> AdmitLarge(const Authorizer::Caller& caller) {
    ASSIGN_OR_RETURN(core::Actor actor, authorizer_.Identify(caller));
    absl::StatusOr<AdmittedCaller> admitted = large_requests_.Admit(std::move(actor));
    if (admitted.ok()) return admitted;
    return absl::UnavailableError(admitted.status().message());
  }

  // Ends the stream when its caller loses the right to it. Returns what to call when it is done.
  std::function<void()> Watch(grpc_call& call, Authorizer::Caller caller,
                              std::function<void()> on_done) {
    grpc_call_ref(&call);
    auto end =
        [call = std::shared_ptr<grpc_call>(&call, grpc_call_unref)](const absl::Status& status) {
          // The transport of a server sends the status to the client.
          grpc_call_cancel_with_status(call.get(), static_cast<grpc_status_code>(status.code()),
                                       std::string(status.message()).c_str(), nullptr);
        };
    const uint64_t id = live_calls_.Add(name_, std::move(caller), std::move(end));
    return [this, id, on_done = std::move(on_done)] {
      live_calls_.Remove(id);
      on_done();
    };
  }

  MethodHandler& handler_;
  const MethodDescriptor& method_;
  const std::string name_;
  Authorizer& authorizer_;
  CallerLimit& large_requests_;
  LiveCalls& live_calls_;
  GrpcListener& listener_;
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
                               grpc::Service& service, Authorizer& authorizer,
                               LiveCalls& live_calls, GrpcListener& listener)
    : large_requests_(absl::StrCat("requests of more than ", kLargeRequestBytes, " bytes"),
                      kLargeRequestsPerCaller) {
  // Generated code numbers methods in the order of the proto file.
  for (int i = 0; i < descriptor.method_count(); ++i) {
    const MethodDescriptor& method = *descriptor.method(i);
    names_.push_back(absl::StrCat("/", descriptor.full_name(), "/", method.name()));
    AddMethod(new RpcServiceMethod(names_.back().c_str(), TypeOf(method), nullptr));
    MarkMethodCallback(i, new GuardedHandler(Handlers::Of(service, i), method, names_.back(),
                                             authorizer, large_requests_, live_calls, listener));
  }
}

}  // namespace muster::service
