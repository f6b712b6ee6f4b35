#include "common/grpc/listener.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "common/network/admission.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

constexpr char kToken[] = "token";

// Accepts calls with a token.
class Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(GrpcListener& listener) : listener_(listener) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const bool allowed = context->client_metadata().count(kToken) > 0;
    if (allowed) listener_.OnAuthenticated(*context);
    return new Call(allowed ? grpc::Status::OK
                            : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "no token"));
  }

 private:
  struct Call final : grpc::ServerGenericBidiReactor {
    explicit Call(const grpc::Status& status) { Finish(status); }
    void OnDone() override { delete this; }
  };
  GrpcListener& listener_;
};

class GrpcListenerTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto listener = GrpcListener::Open({GetParam(), 0});
    if (!listener.ok()) GTEST_SKIP() << listener.status();
    listener_ = *std::move(listener);
    service_ = std::make_unique<Service>(*listener_);
    grpc::ServerBuilder builder;
    listener_->AddTo(builder, grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    listener_->Start();
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    listener_->Stop();
    server_->Shutdown();
  }

  // A channel with a connection of its own.
  std::shared_ptr<grpc::Channel> Connect() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(Address{GetParam(), listener_->port()}.ToString(),
                                     grpc::InsecureChannelCredentials(), arguments);
  }

  // Makes a call on each channel at the same time. Returns the statuses.
  static std::vector<grpc::StatusCode> CallAll(
      const std::vector<std::shared_ptr<grpc::Channel>>& channels, bool token) {
    struct Call {
      grpc::ClientContext context;
      grpc::ByteBuffer request{nullptr, 0};
      grpc::ByteBuffer response;
      grpc::StatusCode code = grpc::StatusCode::OK;
    };
    std::vector<Call> calls(channels.size());
    absl::BlockingCounter left(static_cast<int>(calls.size()));
    for (size_t i = 0; i < calls.size(); ++i) {
      Call& call = calls[i];
      if (token) call.context.AddMetadata(kToken, "valid");
      call.context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
      call.context.set_wait_for_ready(token);
      grpc::GenericStub(channels[i])
          .UnaryCall(&call.context, "/Service/Method", {}, &call.request, &call.response,
                     [&call, &left](const grpc::Status& status) {
                       call.code = status.error_code();
                       left.DecrementCount();
                     });
    }
    left.Wait();
    std::vector<grpc::StatusCode> codes;
    for (const Call& call : calls) codes.push_back(call.code);
    return codes;
  }

  std::unique_ptr<GrpcListener> listener_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

// As when the workers behind one address reconnect to a restarted coordinator.
TEST_P(GrpcListenerTest, ServesManyClientsOfAnAddressAtOnce) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (size_t i = 0; i < 4 * Admission::kStrangersPerAddress; ++i) channels.push_back(Connect());
  for (const grpc::StatusCode code : CallAll(channels, true)) {
    // A call without a message fails in the client once the server has accepted it.
    EXPECT_NE(code, grpc::StatusCode::UNAVAILABLE);
    EXPECT_NE(code, grpc::StatusCode::DEADLINE_EXCEEDED);
  }
}

TEST_P(GrpcListenerTest, ClosesConnectionsThatCallWithoutCredentials) {
  const std::vector<std::shared_ptr<grpc::Channel>> user = {Connect()};
  CallAll(user, true);
  const std::vector<std::shared_ptr<grpc::Channel>> attacker(Admission::kBudget + 1, Connect());
  const std::vector<grpc::StatusCode> codes = CallAll(attacker, false);
  EXPECT_EQ(std::count(codes.begin(), codes.end(), grpc::StatusCode::OK), 0);
  EXPECT_GT(std::count(codes.begin(), codes.end(), grpc::StatusCode::UNAVAILABLE), 0);
  EXPECT_EQ(user[0]->GetState(false), GRPC_CHANNEL_READY);
  EXPECT_NE(CallAll(user, true)[0], grpc::StatusCode::UNAVAILABLE);
}

INSTANTIATE_TEST_SUITE_P(, GrpcListenerTest, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& info) { return info.param == "::1" ? "ipv6" : "ipv4"; });

}  // namespace
}  // namespace muster
