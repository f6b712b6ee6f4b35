#include "tests/fuzz/call.h"

#include <grpcpp/generic/generic_stub.h>

#include "absl/strings/str_cat.h"

namespace muster::fuzz {

grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                  const google::protobuf::MethodDescriptor& method,
                  const std::vector<std::string>& messages, std::chrono::milliseconds deadline) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline);
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const std::string name = absl::StrCat("/", method.service()->full_name(), "/", method.name());
  const auto call = stub.PrepareCall(&context, name, &queue);
  call->StartCall(nullptr);
  bool open = wait();
  for (const std::string& message : messages) {
    if (!open) break;
    const grpc::Slice slice(message);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    open = wait();
  }
  if (open) {
    call->WritesDone(nullptr);
    wait();
  }
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  const bool streams = method.client_streaming() || method.server_streaming();
  if (wait() && streams) context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  return status;
}

}  // namespace muster::fuzz
