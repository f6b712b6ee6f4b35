// Tests of the directive to write a checkpoint, which the worker passes to rank 0 only.
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/rank.grpc.pb.h"
#include "worker/agent/agent_fixture.h"
#include "worker/agent/scripted_coordinator.h"

namespace muster::agent {
namespace {

// A rank's Watch call.
class Watch {
 public:
  // `address`: "MUSTER_WORKER_SOCKET MUSTER_RANK_TOKEN" of the rank.
  Watch(const std::string& address, uint32_t rank) {
    const std::pair<std::string, std::string> words = absl::StrSplit(address, ' ');
    stub_ = v1::RankService::NewStub(
        grpc::CreateChannel(words.first, grpc::InsecureChannelCredentials()));
    v1::WatchRequest request;
    request.mutable_identity()->set_job_id(kJob);
    request.mutable_identity()->set_generation(1);
    request.mutable_identity()->set_rank(rank);
    request.mutable_identity()->set_token(words.second);
    reader_ = stub_->Watch(&context_, request);
  }
  ~Watch() { context_.TryCancel(); }
  // The next directive; KIND_UNSPECIFIED at the end of the stream.
  v1::Directive::Kind Next() {
    v1::Directive directive;
    return reader_->Read(&directive) ? directive.kind() : v1::Directive::KIND_UNSPECIFIED;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::RankService::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::Directive>> reader_;
};

class CheckpointDirectiveTest : public AgentTest {
 protected:
  // Starts two ranks that outlive a directive to stop, and returns how to reach the worker as each.
  std::vector<std::string> StartRanks() {
    for (const char* name : {"rank-0", "rank-1"}) MakeFifo(name);
    StartBoth();
    coordinator_->Send(Launch("trap '' TERM; echo $MUSTER_WORKER_SOCKET $MUSTER_RANK_TOKEN > " +
                                  Path("rank-$RANK") + "; while :; do sleep 0.01; done",
                              2));
    std::vector<std::string> addresses;
    for (const char* name : {"rank-0", "rank-1"}) {
      addresses.emplace_back(absl::StripAsciiWhitespace(Read(Path(name))));
    }
    return addresses;
  }

  void SendCheckpoint(uint64_t generation = 1) {
    v1::CoordinatorMessage message;
    message.mutable_checkpoint()->set_job_id(kJob);
    message.mutable_checkpoint()->set_generation(generation);
    coordinator_->Send(message);
  }

  // Waits until the worker has handled all messages so far.
  void AwaitHandled(uint64_t unknown_generation) {
    SendCheckpoint(unknown_generation);
    ASSERT_TRUE(coordinator_->WaitFor([unknown_generation](const v1::WorkerMessage& message) {
      return message.unknown_generation().generation() == unknown_generation;
    }));
  }
};

TEST_F(CheckpointDirectiveTest, ReachesRankZeroOnceAndNeverReplacesAStop) {
  const std::vector<std::string> addresses = StartRanks();
  Watch first(addresses[0], 0);
  Watch other_rank(addresses[1], 1);
  // A request before the worker has accepted the call is dropped.
  absl::Notification received;
  std::thread reader([&] {
    EXPECT_EQ(first.Next(), v1::Directive::CHECKPOINT);
    received.Notify();
  });
  do {
    SendCheckpoint();
  } while (!received.WaitForNotificationWithTimeout(absl::Milliseconds(20)));
  reader.join();
  AwaitHandled(7);

  Watch second(addresses[0], 0);
  SendStop(kPatience);
  EXPECT_EQ(second.Next(), v1::Directive::STOP) << "the checkpoint is not requested again";
  EXPECT_EQ(other_rank.Next(), v1::Directive::STOP) << "only rank 0 receives it";
  SendCheckpoint();
  AwaitHandled(8);
  Watch third(addresses[0], 0);
  EXPECT_EQ(third.Next(), v1::Directive::STOP);
  SendStop(absl::ZeroDuration());
  WaitForRank(0, IsExited);
  WaitForRank(1, IsExited);
  EXPECT_EQ(second.Next(), v1::Directive::KIND_UNSPECIFIED);
  EXPECT_EQ(third.Next(), v1::Directive::KIND_UNSPECIFIED);
}

}  // namespace
}  // namespace muster::agent
