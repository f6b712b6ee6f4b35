// Calls of every method of a coordinator, over loopback, with any values in the requests.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/store/memory_store.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "proto/muster/v1/cluster.grpc.pb.h"
#include "proto/muster/v1/identity.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "tests/fuzz/call.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/edit_message.h"

namespace muster {
namespace {

constexpr int kMaxEdits = 12;
constexpr int kMaxMessages = 3;
// Jobs accumulate, so a coordinator answers this many inputs only.
constexpr int kInputsPerCoordinator = 500;
// Streams of jobs that do not run may wait for longer.
constexpr std::chrono::milliseconds kStreamDeadline(20);
constexpr std::chrono::milliseconds kUnaryDeadline(20'000);

struct Service {
  Service() {
    service::CoordinatorOptions options;
    options.listen = "127.0.0.1:0";
    options.http = "127.0.0.1:0";
    options.access.require_token = false;
    auto started = service::Coordinator::Start(options, store);
    fuzz::CheckOk(started.status(), "the coordinator starts");
    coordinator = *std::move(started);
    channel = grpc::CreateChannel(coordinator->grpc_address().ToString(),
                                  grpc::InsecureChannelCredentials());
    v1::SubmitJobRequest request;
    request.set_protocol_version(kProtocolVersion);
    request.mutable_spec()->set_name("job");
    request.mutable_spec()->add_command("true");
    v1::SubmitJobResponse response;
    grpc::ClientContext context;
    const grpc::Status status =
        v1::ClusterService::NewStub(channel)->SubmitJob(&context, request, &response);
    fuzz::Check(status.ok(), "a job can be submitted", status.error_message());
    words = {response.job().job_id(), "job", "node1", "small_cnn", "a", "1"};
  }

  store::MemoryStore store;
  std::unique_ptr<service::Coordinator> coordinator;
  std::shared_ptr<grpc::Channel> channel;
  std::vector<std::string> words;
};

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  static std::unique_ptr<Service> service;
  static int inputs = 0;
  if (inputs++ % kInputsPerCoordinator == 0) {
    service.reset();
    service = std::make_unique<Service>();
  }
  FuzzedDataProvider input(data, size);
  const google::protobuf::ServiceDescriptor* const services[] = {
      v1::SubmitJobRequest::descriptor()->file()->service(0),
      v1::WorkerMessage::descriptor()->file()->service(0),
      v1::EnrollNodeRequest::descriptor()->file()->service(0),
  };
  const google::protobuf::ServiceDescriptor& called = *input.PickValueInArray(services);
  const auto& method = *called.method(input.ConsumeIntegralInRange(0, called.method_count() - 1));
  auto* const factory = google::protobuf::MessageFactory::generated_factory();
  std::vector<std::string> messages(
      method.client_streaming() ? input.ConsumeIntegralInRange(1, kMaxMessages) : 1);
  for (std::string& bytes : messages) {
    const std::unique_ptr<google::protobuf::Message> message(
        factory->GetPrototype(method.input_type())->New());
    if (auto* submit = dynamic_cast<v1::SubmitJobRequest*>(message.get())) {
      submit->set_protocol_version(kProtocolVersion);
      submit->mutable_spec()->add_command("true");
    }
    for (int n = input.ConsumeIntegralInRange(0, kMaxEdits); n > 0; --n) {
      fuzz::EditMessage(input, service->words, *message);
    }
    bytes = message->SerializeAsString();
  }
  const bool stream = method.client_streaming() || method.server_streaming();
  const grpc::Status status =
      fuzz::Call(service->channel, method, messages, stream ? kStreamDeadline : kUnaryDeadline);
  const grpc::StatusCode code = status.error_code();
  fuzz::Check(code != grpc::StatusCode::INTERNAL && code != grpc::StatusCode::UNKNOWN &&
                  (stream || (code != grpc::StatusCode::DEADLINE_EXCEEDED &&
                              code != grpc::StatusCode::UNAVAILABLE)),
              "calls end with an error that names the problem of the request",
              absl::StrCat(code, status.error_message()));
  return 0;
}
