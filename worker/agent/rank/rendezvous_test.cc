#include "worker/agent/rank/rendezvous.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousTest() {
    Rendezvous::Outside outside;
    outside.send = [this](v1::WorkerMessage message) { sent_.push_back(std::move(message)); };
    outside.run_after = [this](absl::Duration, std::function<void()> closure) {
      timers_.push_back(std::move(closure));
    };
    outside.store = [this](const v1::RendezvousRecord& record, bool replace) {
      if (replace) stored_.Clear();
      stored_.MergeFrom(record);
    };
    outside_ = outside;
    rendezvous_ = std::make_unique<Rendezvous>("job", 3, std::set<uint32_t>{4, 5}, outside);
  }

  // Replaces the worker by one that finds only what the earlier one has stored.
  void Restart() {
    rendezvous_ = std::make_unique<Rendezvous>("job", 3, std::set<uint32_t>{4, 5}, outside_);
    rendezvous_->Restore(stored_);
    sent_.clear();
    answers_.clear();
  }

  // Stores the answer of call `id`; a second answer fails the test.
  Rendezvous::Done Keep(CallId id) {
    return [this, id](absl::StatusOr<std::string> answer) {
      EXPECT_TRUE(answers_.emplace(id, std::move(answer)).second) << "answered twice: " << id;
    };
  }
  bool Answered(CallId id) const { return answers_.count(id) > 0; }
  absl::Status StatusOf(CallId id) const {
    const auto it = answers_.find(id);
    return it == answers_.end() ? absl::UnknownError("not answered") : it->second.status();
  }

  v1::KeyValue Value(const std::string& key, const std::string& value) const {
    v1::KeyValue message;
    message.set_key(key);
    message.set_value(value);
    return message;
  }
  static v1::BarrierId Barrier(const std::string& group, uint64_t sequence) {
    v1::BarrierId barrier;
    barrier.set_group(group);
    barrier.set_sequence(sequence);
    return barrier;
  }
  void Release(const std::string& group, uint64_t sequence) {
    v1::ReleaseBarrier message;
    *message.mutable_barrier() = Barrier(group, sequence);
    rendezvous_->OnReleaseBarrier(message);
  }

  std::vector<v1::WorkerMessage> sent_;
  std::vector<std::function<void()>> timers_;
  std::map<CallId, absl::StatusOr<std::string>> answers_;
  v1::RendezvousRecord stored_;
  Rendezvous::Outside outside_;
  std::unique_ptr<Rendezvous> rendezvous_;
};

TEST_F(RendezvousTest, JoinsWaitForTheWorld) {
  rendezvous_->Join(4, 1, Keep(1));
  EXPECT_FALSE(Answered(1));
  rendezvous_->OnWorld();
  EXPECT_TRUE(StatusOf(1).ok());
  rendezvous_->Join(5, 2, Keep(2));
  EXPECT_TRUE(StatusOf(2).ok());
}

TEST_F(RendezvousTest, SendsOneRequestPerKey) {
  rendezvous_->Get(4, "k", 1, Keep(1));
  rendezvous_->Get(5, "k", 2, Keep(2));
  EXPECT_EQ(sent_.size(), 1u);
  rendezvous_->OnKeyValue(Value("k", "v"));
  EXPECT_EQ(answers_.at(1).value_or(""), "v");
  EXPECT_EQ(answers_.at(2).value_or(""), "v");
  rendezvous_->Get(4, "k", 3, Keep(3));
  EXPECT_EQ(answers_.at(3).value_or(""), "v");
  EXPECT_EQ(sent_.size(), 1u);
}

TEST_F(RendezvousTest, RejectsPutIfAnotherNodePutAnotherValue) {
  rendezvous_->Put(4, "k", "mine", 1, Keep(1));
  rendezvous_->Get(5, "k", 2, Keep(2));
  rendezvous_->OnKeyValue(Value("k", "theirs"));
  EXPECT_TRUE(absl::IsAlreadyExists(StatusOf(1)));
  EXPECT_EQ(answers_.at(2).value_or(""), "theirs");
}

TEST_F(RendezvousTest, RejectedPutLeavesReadersWaiting) {
  rendezvous_->Put(4, "k", "mine", 1, Keep(1));
  rendezvous_->Get(5, "k", 2, Keep(2));
  v1::KeyValue refusal = Value("k", "");
  refusal.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  rendezvous_->OnKeyValue(refusal);
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(1)));
  EXPECT_FALSE(Answered(2));
}

TEST_F(RendezvousTest, RejectsLocalConflictAtOnce) {
  rendezvous_->Put(4, "k", "a", 1, Keep(1));
  rendezvous_->Put(5, "k", "b", 2, Keep(2));
  EXPECT_FALSE(Answered(1));
  EXPECT_TRUE(absl::IsAlreadyExists(StatusOf(2)));
}

TEST_F(RendezvousTest, EnforcesLimits) {
  rendezvous_->Put(4, "", "v", 1, Keep(1));
  rendezvous_->Put(4, std::string(limits::kKeyBytes + 1, 'k'), "v", 2, Keep(2));
  rendezvous_->Put(4, "k", std::string(limits::kValueBytes + 1, 'v'), 3, Keep(3));
  rendezvous_->Arrive(4, Barrier(std::string(limits::kKeyBytes + 1, 'g'), 1), 4, Keep(4));
  rendezvous_->Arrive(4, Barrier("g", 0), 5, Keep(5));
  for (CallId id = 1; id <= 5; ++id) EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(id))) << id;
  EXPECT_TRUE(sent_.empty());

  CallId id = 100;
  for (int i = 0; i < 128; ++i, ++id) rendezvous_->Get(4, absl::StrCat("key-", i), id, Keep(id));
  EXPECT_FALSE(Answered(id - 1));
  rendezvous_->Get(4, "one-more", id, Keep(id));
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(id)));
}

TEST_F(RendezvousTest, LimitsOpenBarriers) {
  CallId id = 1;
  for (; id <= limits::kBarriersPerGeneration; ++id) {
    rendezvous_->Arrive(4, Barrier("g", id), id, Keep(id));
    rendezvous_->End(id, absl::CancelledError("gone"));
  }
  rendezvous_->Arrive(4, Barrier("g", id), id, Keep(id));
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(id)));
}

TEST_F(RendezvousTest, SendsBarrierOnceAllLocalRanksArrived) {
  rendezvous_->Arrive(5, Barrier("world", 1), 1, Keep(1));
  EXPECT_TRUE(sent_.empty());
  rendezvous_->Arrive(4, Barrier("world", 1), 2, Keep(2));
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].arrive_barrier().generation(), 3u);
  EXPECT_THAT(sent_[0].arrive_barrier().ranks(), ElementsAre(4, 5));
  Release("world", 1);
  EXPECT_TRUE(StatusOf(1).ok());
  EXPECT_TRUE(StatusOf(2).ok());
  // The timer of the first arrival has no effect.
  ASSERT_EQ(timers_.size(), 1u);
  timers_[0]();
  EXPECT_EQ(sent_.size(), 1u);
  // Repeated releases have no effect.
  rendezvous_->Arrive(5, Barrier("world", 1), 3, Keep(3));
  EXPECT_TRUE(StatusOf(3).ok());
  ASSERT_EQ(rendezvous_->PassedBarriers().size(), 1u);
  EXPECT_EQ(rendezvous_->PassedBarriers()[0].sequence(), 1u);
}

TEST_F(RendezvousTest, ReportsArrivalsWithoutLateRanks) {
  rendezvous_->Arrive(5, Barrier("world", 1), 1, Keep(1));
  ASSERT_EQ(timers_.size(), 1u);
  timers_[0]();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_THAT(sent_[0].arrive_barrier().ranks(), ElementsAre(5));
}

TEST_F(RendezvousTest, CancelledCallsLeaveNoWaiter) {
  rendezvous_->Get(4, "k", 1, Keep(1));
  rendezvous_->Arrive(4, Barrier("world", 1), 2, Keep(2));
  rendezvous_->Join(4, 3, Keep(3));
  for (CallId id = 1; id <= 3; ++id) {
    rendezvous_->End(id, absl::CancelledError("gone"));
    EXPECT_TRUE(absl::IsCancelled(StatusOf(id)));
  }
  // Keep() would detect a second answer.
  rendezvous_->OnKeyValue(Value("k", "v"));
  Release("world", 1);
  rendezvous_->OnWorld();
  rendezvous_.reset();
}

TEST_F(RendezvousTest, ExpiredCallsNameWhatTheyWaitedFor) {
  rendezvous_->Join(4, 1, Keep(1));
  rendezvous_->Expire(1);
  EXPECT_THAT(std::string(StatusOf(1).message()), HasSubstr("ranks 5"));
  rendezvous_->Get(4, "k", 2, Keep(2));
  rendezvous_->Expire(2);
  EXPECT_THAT(std::string(StatusOf(2).message()), HasSubstr("key k"));
  rendezvous_->Arrive(4, Barrier("world", 7), 3, Keep(3));
  rendezvous_->Expire(3);
  EXPECT_THAT(std::string(StatusOf(3).message()), HasSubstr("barrier world/7 is waiting for"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(StatusOf(3)));
}

TEST_F(RendezvousTest, ResendRepeatsUnansweredCalls) {
  rendezvous_->Put(4, "put", "v", 1, Keep(1));
  rendezvous_->Get(4, "get", 2, Keep(2));
  rendezvous_->Arrive(4, Barrier("world", 1), 3, Keep(3));
  rendezvous_->OnKeyValue(Value("put", "v"));
  sent_.clear();
  rendezvous_->Resend();
  std::vector<std::string> said;
  for (const v1::WorkerMessage& message : sent_) {
    if (message.has_put_key()) said.push_back("put " + message.put_key().key());
    if (message.has_get_key() && message.get_key().key() == "get") said.push_back("get get");
    if (message.has_arrive_barrier()) said.push_back("arrive");
  }
  // Also resends the key, for a coordinator that lost its state.
  EXPECT_THAT(said, ElementsAre("put put", "get get", "arrive"));
}

TEST_F(RendezvousTest, AnswersCallsAfterTheEndWithItsStatus) {
  rendezvous_->Join(4, 1, Keep(1));
  rendezvous_->EndAll(absl::AbortedError("over"));
  EXPECT_TRUE(absl::IsAborted(StatusOf(1)));
  rendezvous_->Get(4, "k", 2, Keep(2));
  rendezvous_->Arrive(4, Barrier("world", 1), 3, Keep(3));
  rendezvous_->Put(4, "k", "v", 4, Keep(4));
  for (CallId id = 2; id <= 4; ++id) EXPECT_TRUE(absl::IsAborted(StatusOf(id))) << id;
  sent_.clear();
  rendezvous_->Resend();
  EXPECT_TRUE(sent_.empty());
}

TEST_F(RendezvousTest, DeadlineErrorNamesRanksFromNotice) {
  v1::Wait wait;
  wait.set_what("rendezvous");
  wait.mutable_since()->set_seconds(60);
  wait.add_missing()->set_rank(17);
  wait.mutable_missing(0)->set_node("gpu-03");
  rendezvous_->OnWaitNotice(wait);
  rendezvous_->Join(4, 1, Keep(1));
  rendezvous_->Get(4, "unique-id", 2, Keep(2));
  rendezvous_->Arrive(4, Barrier("world", 3), 3, Keep(3));
  for (const CallId id : {1, 2, 3}) rendezvous_->Expire(id);
  EXPECT_EQ(StatusOf(1).message(), "rendezvous has waited 60.0 s for rank 17 (node gpu-03)");
  EXPECT_THAT(std::string(StatusOf(2).message()),
              AllOf(HasSubstr("no rank has published key unique-id"), HasSubstr("rank 17")));
  // The notice is not used for another wait.
  EXPECT_THAT(std::string(StatusOf(3).message()),
              AllOf(HasSubstr("barrier world/3"), Not(HasSubstr("rank 17"))));
}

TEST_F(RendezvousTest, NextWorkerKnowsPassedBarriers) {
  Release("world", 2);
  Release("world", 1);
  Release("other", 7);
  Restart();
  const std::vector<v1::BarrierId> passed = rendezvous_->PassedBarriers();
  ASSERT_EQ(passed.size(), 2u);
  EXPECT_EQ(passed[0].group(), "other");
  EXPECT_EQ(passed[1].sequence(), 2u);
  // A rank that repeats its call has not received the answer.
  rendezvous_->Arrive(4, Barrier("world", 2), 1, Keep(1));
  EXPECT_TRUE(StatusOf(1).ok()) << StatusOf(1);
}

TEST_F(RendezvousTest, NextWorkerRepeatsAcceptedAndPendingPuts) {
  rendezvous_->Put(4, "accepted", "a", 1, Keep(1));
  rendezvous_->OnKeyValue(Value("accepted", "a"));
  rendezvous_->Put(5, "pending", "p", 2, Keep(2));
  Restart();
  rendezvous_->Resend();
  std::vector<std::string> puts;
  for (const v1::WorkerMessage& message : sent_) {
    if (message.has_put_key()) puts.push_back(message.put_key().key());
  }
  EXPECT_THAT(puts, ElementsAre("accepted", "pending"));
  rendezvous_->Put(5, "pending", "p", 3, Keep(3));
  EXPECT_FALSE(Answered(3));
  rendezvous_->OnKeyValue(Value("pending", "p"));
  EXPECT_TRUE(StatusOf(3).ok()) << StatusOf(3);
}

TEST_F(RendezvousTest, StoredRecordStaysSmall) {
  rendezvous_->Put(4, "key", "value", 1, Keep(1));
  for (uint64_t sequence = 1; sequence <= 5000; ++sequence) Release("world", sequence);
  EXPECT_LE(stored_.passed_size(), 1100);
  EXPECT_EQ(stored_.puts_size(), 1);
  Restart();
  EXPECT_EQ(rendezvous_->PassedBarriers()[0].sequence(), 5000u);
}

}  // namespace
}  // namespace muster::agent
