// Replays the coordinator's side of a session of the previous protocol version to a worker of this
// build, which must do what the recorded worker did.
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_replace.h"
#include "common/security/call_metadata.h"
#include "gmock/gmock.h"
#include "tests/compatibility/replay.h"
#include "worker/agent/agent_fixture.h"

namespace muster::compatibility {
namespace {

using ::testing::IsEmpty;

class ReplayToWorker : public agent::AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    // The Welcomes are in the transcript.
    coordinator_ = std::make_unique<agent::ScriptedCoordinator>(0, /*silent=*/true);
    agent::AgentOptions options = Options();
    const std::filesystem::path bin =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../..";
    options.shim_binary = bin / "worker/muster-shim";
    options.rank_binary = bin / "trainer/muster-rank";
    auto agent = agent::Agent::Start(options, [](const absl::Status&) {});
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
  }

  void Send(v1::CoordinatorMessage message) {
    if (message.has_launch()) {
      (*message.mutable_launch()->mutable_spec()->mutable_env())["AGENT_TEST"] = directory_;
      launched_.insert(message.launch().spec().name());
    }
    if (message.has_key_value()) {
      v1::KeyValue& answer = *message.mutable_key_value();
      answer.set_key(Present(answer.key()));
      answer.set_value(Present(answer.value()));
    }
    coordinator_->Send(message);
  }

  // Waits until this worker has sent an equivalent message.
  void Expect(const Entry& entry) {
    const v1::WorkerMessage& recorded = *entry.worker;
    switch (recorded.kind_case()) {
      case v1::WorkerMessage::kHello:
        return ExpectHello(entry);
      case v1::WorkerMessage::kReport:
        return ExpectReport(recorded.report());
      case v1::WorkerMessage::kPutKey:
        return ExpectPut(recorded.put_key());
      case v1::WorkerMessage::kGetKey:
        ASSERT_TRUE(coordinator_->WaitFor([&](const v1::WorkerMessage& sent) {
          return IsAbout(sent.get_key(), recorded.get_key());
        }));
        return;
      case v1::WorkerMessage::kArriveBarrier:
        ASSERT_TRUE(coordinator_->WaitFor([&](const v1::WorkerMessage& sent) {
          return sent.has_arrive_barrier() &&
                 sent.SerializeAsString() == recorded.SerializeAsString();
        }));
        return;
      default:
        return;  // depends on time
    }
  }

  // Ends the session and waits for the Hello of the next one.
  v1::Hello NextHello() {
    if (sessions_ > 0) coordinator_->BreakSession();
    EXPECT_TRUE(coordinator_->WaitForSessions(++sessions_));
    return coordinator_->hello();
  }

  const std::set<std::string>& launched() const { return launched_; }

 private:
  void ExpectHello(const Entry& entry) {
    const v1::Hello hello = NextHello();
    // A coordinator of an earlier version accepts these numbers only.
    EXPECT_EQ(hello.protocol_version(), entry.worker->hello().protocol_version());
    const char* key = security::kProtocolVersionKey;
    EXPECT_EQ(coordinator_->metadata()[key], entry.metadata.at(key));
    for (const v1::GenerationReport& held : entry.worker->hello().inventory()) {
      ASSERT_NO_FATAL_FAILURE(ExpectReport(held));
    }
  }

  void ExpectReport(const v1::GenerationReport& recorded) {
    for (const v1::RankReport& rank : recorded.ranks()) {
      v1::RankReport report;
      const auto reached = [&](const v1::RankReport& sent) { return sent.phase() >= rank.phase(); };
      ASSERT_TRUE(coordinator_->WaitForRank(recorded.job_id(), recorded.generation(), rank.rank(),
                                            reached, &report))
          << rank.ShortDebugString();
      if (rank.phase() != v1::EXITED) continue;
      EXPECT_EQ(report.exit().exit_code(), rank.exit().exit_code()) << report.ShortDebugString();
      EXPECT_EQ(report.exit().signal(), rank.exit().signal()) << report.ShortDebugString();
      EXPECT_EQ(report.summary().steps(), rank.summary().steps()) << report.ShortDebugString();
      EXPECT_EQ(report.has_join(), rank.has_join()) << report.ShortDebugString();
      EXPECT_EQ(report.has_progress(), rank.has_progress()) << report.ShortDebugString();
    }
  }

  void ExpectPut(const v1::PutKey& recorded) {
    v1::WorkerMessage put;
    ASSERT_TRUE(coordinator_->WaitFor(
        [&](const v1::WorkerMessage& sent) { return IsAbout(sent.put_key(), recorded); }, &put));
    values_[recorded.value()] = put.put_key().value();
  }

  template <typename Key>
  bool IsAbout(const Key& sent, const Key& recorded) const {
    return sent.job_id() == recorded.job_id() && sent.generation() == recorded.generation() &&
           sent.key() == Present(recorded.key());
  }

  // The ranks of this worker choose other values of keys, e.g. unique ids, which are part of other
  // keys.
  std::string Present(const std::string& recorded) const {
    return absl::StrReplaceAll(recorded, values_);
  }

  int sessions_ = 0;
  std::map<std::string, std::string> values_;  // put by this worker, by recorded value
  std::set<std::string> launched_;
};

TEST_F(ReplayToWorker, ObeysCoordinatorOfPreviousVersion) {
  for (const Entry& entry : PreviousTranscript()) {
    SCOPED_TRACE(absl::StrCat(TranscriptPath(), ":", entry.line));
    if (entry.worker.has_value()) {
      ASSERT_NO_FATAL_FAILURE(Expect(entry));
    } else {
      ASSERT_NO_FATAL_FAILURE(Send(*entry.coordinator));
    }
  }
  EXPECT_EQ(launched().size(), 4u);
  // When the next session exists, all earlier messages have been handled.
  EXPECT_THAT(NextHello().inventory(), IsEmpty());
}

}  // namespace
}  // namespace muster::compatibility
