#include "common/rendezvous/rendezvous_state.h"

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Wait = RendezvousState::Wait;

struct Recorder : RendezvousState::Listener {
  void OnComplete(const std::vector<uint32_t>& node_of_rank) override { nodes = node_of_rank; }
  void OnLost(uint32_t rank) override { lost.push_back(rank); }
  void OnClose(const absl::Status& status) override { closed = status; }

  std::vector<uint32_t> nodes;
  std::vector<uint32_t> lost;
  std::optional<absl::Status> closed;
};

class RendezvousStateTest : public ::testing::Test {
 protected:
  absl::Status Join(uint32_t rank, const std::string& host = "h") {
    return state_->Join(rank, host, listeners_[rank % 3]);
  }
  // Records the answer of wait `id`; a second answer fails the test.
  RendezvousState::Done Record(RendezvousState::WaitId id) {
    return [this, id](absl::StatusOr<std::string> answer) {
      EXPECT_TRUE(answers_.emplace(id, std::move(answer)).second) << "answered twice: " << id;
    };
  }
  absl::StatusOr<std::string> AnswerOf(RendezvousState::WaitId id) const {
    const auto found = answers_.find(id);
    return found == answers_.end() ? absl::UnknownError("not answered") : found->second;
  }

  const std::shared_ptr<Recorder> listeners_[3] = {
      std::make_shared<Recorder>(), std::make_shared<Recorder>(), std::make_shared<Recorder>()};
  std::map<RendezvousState::WaitId, absl::StatusOr<std::string>> answers_;
  std::unique_ptr<RendezvousState> state_ =
      std::make_unique<RendezvousState>(std::set<uint32_t>{0, 1, 2});
};

TEST_F(RendezvousStateTest, CompletesWhenAllRanksHaveJoined) {
  EXPECT_TRUE(Join(2, "a").ok());
  EXPECT_TRUE(Join(0, "b").ok());
  EXPECT_THAT(state_->Missing(10), ElementsAre(1));
  EXPECT_THAT(listeners_[0]->nodes, IsEmpty());
  EXPECT_TRUE(Join(1, "a").ok());
  EXPECT_THAT(state_->Missing(10), IsEmpty());
  for (const auto& listener : listeners_) EXPECT_THAT(listener->nodes, ElementsAre(0, 1, 1));
}

TEST_F(RendezvousStateTest, MissingReturnsTheLowestRanks) {
  EXPECT_THAT(state_->Missing(2), ElementsAre(0, 1));
  EXPECT_TRUE(Join(0).ok());
  EXPECT_THAT(state_->Missing(10), ElementsAre(1, 2));
}

TEST_F(RendezvousStateTest, RanksWithoutHostNameGetSeparateNodes) {
  for (const uint32_t rank : {0, 1, 2}) EXPECT_TRUE(Join(rank, "").ok());
  EXPECT_THAT(listeners_[0]->nodes, ElementsAre(0, 1, 2));
}

TEST_F(RendezvousStateTest, RejectsUnexpectedRanks) {
  EXPECT_TRUE(Join(0).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Join(0)));
  EXPECT_TRUE(absl::IsInvalidArgument(Join(3)));
  EXPECT_TRUE(absl::IsInvalidArgument(Join(1, std::string(limits::kLabelBytes + 1, 'x'))));
  EXPECT_THAT(state_->Missing(10), ElementsAre(1, 2));
}

TEST_F(RendezvousStateTest, LostRankFailsWaitingCalls) {
  for (const uint32_t rank : {0, 1, 2}) EXPECT_TRUE(Join(rank).ok());
  EXPECT_TRUE(state_->Put("known", "value").ok());
  state_->Get(1, "key", Record(1));
  state_->Leave(1);
  state_->Remove(1);
  EXPECT_THAT(answers_, IsEmpty());
  EXPECT_THAT(listeners_[0]->lost, IsEmpty());
  state_->Remove(2);
  state_->Remove(2);
  EXPECT_THAT(listeners_[0]->lost, ElementsAre(2));
  EXPECT_THAT(listeners_[1]->lost, IsEmpty());
  EXPECT_THAT(listeners_[2]->lost, IsEmpty());
  const absl::Status lost = absl::UnavailableError("rank 2 went away");
  EXPECT_EQ(AnswerOf(1).status(), lost);
  state_->Get(2, "another", Record(2));
  EXPECT_EQ(AnswerOf(2).status(), lost);
  EXPECT_EQ(state_->failure(), lost);
  state_->Get(3, "known", Record(3));
  EXPECT_EQ(AnswerOf(3).value_or(""), "value");
}

TEST_F(RendezvousStateTest, GetWaitsForAKeyThatIsWrittenOnce) {
  state_->Get(1, "key", Record(1));
  state_->Get(2, "never", Record(2));
  EXPECT_TRUE(state_->IsAwaited({Wait::For::kKey, "key"}));
  EXPECT_TRUE(state_->Put("key", "value").ok());
  EXPECT_FALSE(state_->IsAwaited({Wait::For::kKey, "key"}));
  EXPECT_TRUE(state_->Put("key", "value").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(state_->Put("key", "other")));
  EXPECT_EQ(AnswerOf(1).value_or(""), "value");
  state_->AnswerOne(2, absl::CancelledError("gone"));
  state_->AnswerOne(2, absl::CancelledError("gone"));
  EXPECT_TRUE(absl::IsCancelled(AnswerOf(2).status()));
  state_->Get(3, "", Record(3));
  EXPECT_TRUE(absl::IsInvalidArgument(AnswerOf(3).status()));
}

TEST_F(RendezvousStateTest, AnswersAllCallsThatWaitForTheSameBarrier) {
  const Wait barrier{Wait::For::kBarrier, "world", 1};
  const Wait next{Wait::For::kBarrier, "world", 2};
  EXPECT_TRUE(state_->Await(1, barrier, Record(1)));
  EXPECT_TRUE(state_->Await(2, barrier, Record(2)));
  EXPECT_TRUE(state_->Await(3, next, Record(3)));
  EXPECT_THAT(state_->Waits(), ElementsAre(barrier, next));
  EXPECT_EQ(state_->WaitOf(3), next);
  state_->Answer(barrier, std::string());
  EXPECT_TRUE(AnswerOf(1).ok());
  EXPECT_TRUE(AnswerOf(2).ok());
  EXPECT_EQ(answers_.size(), 2u);
  EXPECT_EQ(state_->WaitOf(1), std::nullopt);
}

TEST_F(RendezvousStateTest, LimitsWaitingCalls) {
  RendezvousState::WaitId id = 0;
  while (answers_.empty()) {
    ++id;
    state_->Get(id, "never", Record(id));
  }
  EXPECT_EQ(id, 3 * 64 + 1);
  EXPECT_TRUE(absl::IsResourceExhausted(AnswerOf(id).status()));
}

TEST_F(RendezvousStateTest, CloseBeforeAllRanksHaveJoinedNamesTheMissingRanks) {
  EXPECT_TRUE(Join(0).ok());
  EXPECT_TRUE(Join(2).ok());
  state_->Get(1, "key", Record(1));
  state_->Close(absl::UnavailableError("closed"));
  EXPECT_EQ(listeners_[2]->closed,
            absl::DeadlineExceededError(
                "the rendezvous closed before all ranks joined; missing: rank 1"));
  EXPECT_EQ(AnswerOf(1).status(), absl::UnavailableError("closed"));
  EXPECT_EQ(Join(1), absl::UnavailableError("closed"));
}

// A listener that calls the state from each of its callbacks.
struct Reentrant final : Recorder {
  explicit Reentrant(RendezvousState& state) : state(state) {}
  void OnComplete(const std::vector<uint32_t>& node_of_rank) override {
    Recorder::OnComplete(node_of_rank);
    state.Get(1, "key", [this](const absl::StatusOr<std::string>& value) {
      got = value;
      state.Remove(1);
    });
    put = state.Put("key", "value");
  }
  void OnLost(uint32_t rank) override {
    Recorder::OnLost(rank);
    missing = state.Missing(10);
    state.Close(absl::UnavailableError("closed"));
  }
  void OnClose(const absl::Status& status) override {
    Recorder::OnClose(status);
    state.Leave(0);
    state.Remove(0);
    failure = state.failure();
  }

  RendezvousState& state;
  absl::Status put = absl::UnknownError("not called");
  absl::StatusOr<std::string> got = absl::UnknownError("not called");
  std::vector<uint32_t> missing = {99};
  absl::Status failure;
};

TEST_F(RendezvousStateTest, ListenersMayCallBack) {
  const auto listener = std::make_shared<Reentrant>(*state_);
  EXPECT_TRUE(state_->Join(0, "", listener).ok());
  EXPECT_TRUE(Join(1).ok());
  EXPECT_TRUE(Join(2).ok());
  EXPECT_THAT(listener->nodes, ElementsAre(0, 1, 1));
  EXPECT_TRUE(listener->put.ok()) << listener->put;
  EXPECT_EQ(listener->got.value_or(""), "value");
  EXPECT_THAT(listener->lost, ElementsAre(1));
  EXPECT_THAT(listener->missing, IsEmpty());
  EXPECT_EQ(listener->closed, absl::OkStatus());
  EXPECT_EQ(listener->failure, absl::UnavailableError("rank 1 went away"));
  EXPECT_THAT(listeners_[2]->lost, ElementsAre(1));
  EXPECT_EQ(listeners_[2]->closed, absl::OkStatus());
}

TEST_F(RendezvousStateTest, DoneMayDestroyTheState) {
  state_->Get(1, "key", [this](const absl::StatusOr<std::string>& value) {
    EXPECT_EQ(value.value_or(""), "value");
    state_ = nullptr;
  });
  state_->Get(2, "key", Record(2));
  EXPECT_TRUE(state_->Put("key", "value").ok());
  EXPECT_EQ(state_, nullptr);
  EXPECT_EQ(AnswerOf(2).value_or(""), "value");
}

TEST_F(RendezvousStateTest, ConcurrentPutsKeepOneValueAndAnswerEachWaitOnce) {
  constexpr int kThreads = 4;
  constexpr int kKeys = 200;
  std::atomic<int> written{0};
  std::atomic<int> answered[kThreads * kKeys] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < kKeys; ++k) {
        const std::string key = absl::StrCat(k);
        const int call = t * kKeys + k;
        state_->Get(call, key, [&answered, call](const absl::StatusOr<std::string>& value) {
          if (value.ok()) ++answered[call];
        });
        if (state_->Put(key, absl::StrCat(t)).ok()) ++written;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(written, kKeys);
  for (const std::atomic<int>& each : answered) EXPECT_EQ(each, 1);
}

}  // namespace
}  // namespace muster
