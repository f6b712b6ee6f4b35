// TestNode and DrainNode with a deadline, over the network.
#include <memory>
#include <string>

#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;
using Stub = v1::ClusterService::Stub;

class TestNodeTest : public CoordinatorFixture {
 protected:
  std::unique_ptr<RawWorker> ConnectTested(const std::string& name) {
    auto worker = std::make_unique<RawWorker>(channel_);
    v1::Hello hello = RawWorker::HelloOf(name);
    hello.set_tests_itself(true);
    worker->SendHello(hello);
    return worker;
  }
  static void Answer(RawWorker& worker, const std::string& failure) {
    v1::WorkerMessage answer;
    v1::SelfTestReport& report = *answer.mutable_self_test();
    report.set_id(worker.Next(v1::CoordinatorMessage::kSelfTest).self_test().id());
    report.add_checks()->set_name("disk");
    report.mutable_checks(0)->set_failure(failure);
    worker.Send(answer);
  }
  v1::Node GetNode(const std::string& name) {
    v1::GetNodeRequest request;
    request.set_name(name);
    v1::Node node;
    EXPECT_TRUE(Call(*cluster_, &Stub::GetNode, request, &node).ok());
    return node;
  }
  grpc::Status Test(const std::string& name, v1::Node& node) {
    v1::TestNodeRequest request;
    request.set_name(name);
    return Call(*cluster_, &Stub::TestNode, request, &node);
  }
};

TEST_F(TestNodeTest, StartsSelfTestAndReturnsNode) {
  const auto worker = ConnectTested("node-1");
  Answer(*worker, "No space left on device");
  AwaitCondition([&] { return GetNode("node-1").cordoned(); });
  EXPECT_EQ(GetNode("node-1").cordon_reason(), "self-test: disk: No space left on device");
  v1::Node node;
  ASSERT_TRUE(Test("node-1", node).ok());
  EXPECT_TRUE(node.self_test().running());
  EXPECT_TRUE(node.cordoned_by_health());
  Answer(*worker, "");
  AwaitCondition([&] { return !GetNode("node-1").cordoned(); });
}

TEST_F(TestNodeTest, RefusesNodesThatCannotBeTested) {
  const auto worker = Connect("old");
  v1::Node node;
  const grpc::Status old = Test("old", node);
  EXPECT_EQ(old.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(old.error_message(), HasSubstr("cannot test itself; upgrade it"));
  EXPECT_EQ(Test("unknown", node).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Test("", node).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(TestNodeTest, DrainSendsDeadlineAsGracePeriod) {
  const auto worker = Connect("node-1");
  Submit("hello");
  worker->Next(v1::CoordinatorMessage::kLaunch);
  v1::DrainNodeRequest drain;
  drain.set_name("node-1");
  drain.mutable_deadline()->set_seconds(-1);
  v1::Node node;
  const grpc::Status negative = Call(*cluster_, &Stub::DrainNode, drain, &node);
  EXPECT_EQ(negative.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(negative.error_message(), HasSubstr("deadline is negative"));
  drain.mutable_deadline()->set_seconds(2);
  ASSERT_TRUE(Call(*cluster_, &Stub::DrainNode, drain, &node).ok());
  EXPECT_TRUE(node.has_drain_deadline());
  EXPECT_LE(worker->Next(v1::CoordinatorMessage::kStop).stop().grace_period().seconds(), 2);
}

}  // namespace
}  // namespace muster::service
