#include "coordinator/service/auth/audit_calls.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/grpc/status.h"
#include "coordinator/service/auth/access.h"
#include "coordinator/service/auth/caller.h"
#include "coordinator/service/checks/validate.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/message.h"
#include "google/protobuf/reflection.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::internal::WireFormatLite;
using ::google::protobuf::io::CodedInputStream;
using ::grpc::experimental::InterceptionHookPoints;
using ::grpc::experimental::InterceptorBatchMethods;

// Longest name that is recorded: a request that is refused may have any size.
constexpr size_t kNameBytes = 256;

// The text of a field, given as "message.field"; "" if it is not set. Repeated texts are joined.
std::string FieldText(const Message& message, absl::string_view path) {
  const Message* at = &message;
  const std::vector<absl::string_view> names = absl::StrSplit(path, '.');
  for (size_t i = 0; i < names.size(); ++i) {
    const FieldDescriptor* const field =
        at->GetDescriptor()->FindFieldByName(std::string(names[i]));
    if (field == nullptr) return "";
    const google::protobuf::Reflection& reflection = *at->GetReflection();
    if (i + 1 < names.size()) {
      at = &reflection.GetMessage(*at, field);
    } else if (field->is_repeated()) {
      const auto texts = reflection.GetRepeatedFieldRef<std::string>(*at, field);
      return absl::StrJoin(texts.begin(), texts.end(), ",").substr(0, kNameBytes);
    } else {
      return reflection.GetString(*at, field).substr(0, kNameBytes);
    }
  }
  return "";
}

// The same of a serialized message. Does not parse it: a request of many small values takes thirty
// times its size in memory, and its caller may have no right to the call.
std::string SerializedText(const Descriptor& type, absl::string_view bytes,
                           absl::string_view path) {
  const std::pair<absl::string_view, absl::string_view> names =
      absl::StrSplit(path, absl::MaxSplits('.', 1));
  const FieldDescriptor* const field = type.FindFieldByName(std::string(names.first));
  if (field == nullptr) return "";
  CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                         static_cast<int>(bytes.size()));
  std::string text;
  while (const uint32_t tag = input.ReadTag()) {
    uint32_t size = 0;
    if (tag !=
        WireFormatLite::MakeTag(field->number(), WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) {
      if (!WireFormatLite::SkipField(&input, tag)) break;
      continue;
    }
    if (!input.ReadVarint32(&size)) break;
    const absl::string_view value = bytes.substr(input.CurrentPosition(), size);
    if (!input.Skip(static_cast<int>(size))) break;
    std::string found = names.second.empty()
                            ? std::string(value.substr(0, kNameBytes))
                            : SerializedText(*field->message_type(), value, names.second);
    if (field->is_repeated() && !text.empty()) {
      if (text.size() < kNameBytes) absl::StrAppend(&text, ",", found);
    } else if (!found.empty()) {
      text = std::move(found);
    }
  }
  return text.substr(0, kNameBytes);
}

// The first message of a stream of the type that the method receives.
const Message* FirstMessage(const Descriptor& type, const void* received) {
  if (received == nullptr) return nullptr;
  if (&type == v1::ExecInput::descriptor()) return static_cast<const v1::ExecInput*>(received);
  if (&type == v1::UploadFileRequest::descriptor()) {
    return static_cast<const v1::UploadFileRequest*>(received);
  }
  if (&type == v1::WorkerMessage::descriptor()) {
    return static_cast<const v1::WorkerMessage*>(received);
  }
  return nullptr;
}

// Lives as long as its call.
class AuditCall final : public grpc::experimental::Interceptor {
 public:
  AuditCall(AuditLog& log, Authorizer& authorizer, const MethodDescriptor& method,
            const grpc::ServerContextBase& context)
      : log_(log), authorizer_(authorizer), method_(method), context_(context) {}

  // A call whose client disconnects may end without a status.
  ~AuditCall() override { Record(absl::CancelledError("the client has disconnected")); }

  void Intercept(InterceptorBatchMethods* methods) override {
    using enum InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(POST_RECV_INITIAL_METADATA)) Identify();
    if (methods->QueryInterceptionHookPoint(POST_RECV_MESSAGE)) OnReceived(*methods);
    if (methods->QueryInterceptionHookPoint(PRE_SEND_MESSAGE)) OnSend(*methods);
    if (methods->QueryInterceptionHookPoint(PRE_SEND_STATUS)) {
      Record(FromGrpcStatus(methods->GetSendStatus()));
    }
    methods->Proceed();
  }

 private:
  void Identify() {
    const std::string host = PeerHost(context_.peer());
    entry_.peer = host.empty() ? context_.peer() : host;
    const auto identity = authorizer_.Authenticate(CallerOf(context_));
    if (!identity.ok()) return;
    entry_.user = identity->user;
    entry_.role = RoleName(identity->role);
  }

  void OnReceived(InterceptorBatchMethods& methods) {
    if (std::exchange(received_, true)) return;
    if (method_.client_streaming()) {
      const Message* const first = FirstMessage(*method_.input_type(), methods.GetRecvMessage());
      if (first != nullptr) entry_.object = FieldText(*first, access_.named_by());
      return;
    }
    // GuardedService has received it and not yet parsed it.
    grpc_byte_buffer_reader reader;
    auto* const bytes = static_cast<grpc_byte_buffer*>(methods.GetRecvMessage());
    if (bytes == nullptr || grpc_byte_buffer_reader_init(&reader, bytes) == 0) return;
    const grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    const absl::string_view request(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
                                    GRPC_SLICE_LENGTH(slice));
    entry_.object = SerializedText(*method_.input_type(), request, access_.named_by());
    entry_.idempotency_key = SerializedText(*method_.input_type(), request, "idempotency_key");
    grpc_slice_unref(slice);
    grpc_byte_buffer_reader_destroy(&reader);
  }

  void OnSend(InterceptorBatchMethods& methods) {
    if (access_.then_by().empty()) return;
    const grpc::ByteBuffer* const bytes = methods.GetSerializedSendMessage();
    grpc::Slice slice;
    if (bytes == nullptr || !bytes->DumpToSingleSlice(&slice).ok()) return;
    const std::unique_ptr<Message> response(google::protobuf::MessageFactory::generated_factory()
                                                ->GetPrototype(method_.output_type())
                                                ->New());
    if (!response->ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) return;
    std::string name = FieldText(*response, access_.then_by());
    if (!name.empty()) entry_.object = std::move(name);
  }

  void Record(absl::Status status) {
    if (std::exchange(recorded_, true)) return;
    if (access_.audited() == v1::Access::REFUSALS && !absl::IsPermissionDenied(status) &&
        !absl::IsUnauthenticated(status)) {
      return;
    }
    entry_.method = method_.name();
    entry_.object_kind = access_.object();
    entry_.status = std::move(status);
    log_.Append(entry_);
  }

  AuditLog& log_;
  Authorizer& authorizer_;
  const MethodDescriptor& method_;
  const v1::Access& access_ = AccessOf(method_);
  const grpc::ServerContextBase& context_;
  AuditEntry entry_;
  bool received_ = false;
  bool recorded_ = false;
};

}  // namespace

grpc::experimental::Interceptor* AuditCalls::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  const MethodDescriptor* const method =
      FindMethod(info->method() == nullptr ? "" : info->method());
  if (method == nullptr || AccessOf(*method).audited() == v1::Access::NEVER) return nullptr;
  return new AuditCall(log_, authorizer_, *method, *info->server_context());
}

}  // namespace muster::service
