// Records the sessions of one worker: a proxy between it and a coordinator. Heartbeats without
// reports, and their acknowledgements, are left out. record.py runs it.
//
//   recorder COORDINATOR_ADDRESS TRANSCRIPT
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/security/call_metadata.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/worker.grpc.pb.h"
#include "tests/compatibility/transcript.h"

namespace muster::compatibility {
namespace {

constexpr const char* kVersionKeys[] = {security::kProtocolVersionKey,
                                        security::kNewestProtocolVersionKey,
                                        security::kSoftwareVersionKey};

// Thread-safe. A session appears in the transcript once the coordinator has answered its Hello: a
// worker tries again while the coordinator is down.
class SessionTranscript {
 public:
  explicit SessionTranscript(std::ofstream& file) : file_(file) {}

  void Write(const std::string& text, bool from_coordinator) {
    absl::MutexLock lock(&mutex_);
    answered_ = answered_ || from_coordinator;
    held_ += text;
    if (!answered_) return;
    file_ << held_ << std::flush;
    held_.clear();
  }

 private:
  absl::Mutex mutex_;
  std::ofstream& file_ ABSL_GUARDED_BY(mutex_);
  std::string held_ ABSL_GUARDED_BY(mutex_);
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
};

class Recorder final : public v1::WorkerService::Service {
 public:
  Recorder(const std::string& coordinator, const std::string& transcript)
      : stub_(v1::WorkerService::NewStub(
            grpc::CreateChannel(coordinator, grpc::InsecureChannelCredentials()))),
        file_(transcript) {}

  grpc::Status Session(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* worker) override {
    SessionTranscript transcript(file_);
    const auto onward = grpc::ClientContext::FromServerContext(*context);
    onward->set_wait_for_ready(true);
    for (const char* key : kVersionKeys) {
      const std::string value = Forward(*context, key, *onward);
      if (!value.empty()) transcript.Write(ToText(key, value), false);
    }
    Forward(*context, security::kTokenKey, *onward);
    const auto coordinator = stub_->Session(onward.get());
    std::thread back([&] {
      v1::CoordinatorMessage message;
      while (coordinator->Read(&message)) {
        if (!message.has_heartbeat_ack()) transcript.Write(ToText(message), true);
        worker->Write(message);
      }
      context->TryCancel();
    });
    v1::WorkerMessage message;
    while (worker->Read(&message)) {
      const bool empty = message.has_heartbeat() && message.heartbeat().progress().empty();
      if (!empty) transcript.Write(ToText(message), false);
      coordinator->Write(message);
    }
    coordinator->WritesDone();
    back.join();
    return coordinator->Finish();
  }

 private:
  // Returns the value; empty if there is none.
  static std::string Forward(const grpc::ServerContext& from, const char* key,
                             grpc::ClientContext& to) {
    const auto found = from.client_metadata().find(key);
    if (found == from.client_metadata().end()) return "";
    const std::string value(found->second.data(), found->second.size());
    to.AddMetadata(key, value);
    return value;
  }

  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::ofstream file_;
};

}  // namespace
}  // namespace muster::compatibility

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: recorder COORDINATOR_ADDRESS TRANSCRIPT\n");
    return 2;
  }
  muster::compatibility::Recorder recorder(argv[1], argv[2]);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&recorder);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::printf("listening grpc=127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
}
