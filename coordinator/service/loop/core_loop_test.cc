// Checks that effects leave the process only after their writes are committed. The store blocks or
// fails commits on request; the core and its threads are real.
#include "coordinator/service/loop/core_loop.h"

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/version.h"
#include "coordinator/store/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::service {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Blocks each commit until the test releases it, then commits to `base` or fails.
class GatedStore : public store::Store {
 public:
  absl::Status Commit(absl::Span<const store::Mutation> batch) override {
    absl::MutexLock lock(&mutex_);
    ++entered_;
    mutex_.Await(absl::Condition(&open_));
    if (!failure_.ok()) return failure_;
    return base_.Commit(batch);
  }
  absl::StatusOr<std::vector<store::Record>> Scan(absl::string_view prefix) const override {
    return base_.Scan(prefix);
  }

  store::Space Measure() const override {
    absl::MutexLock lock(&mutex_);
    return space_;
  }

  void SetSpace(store::Space space) {
    absl::MutexLock lock(&mutex_);
    space_ = space;
  }
  void Close() {
    absl::MutexLock lock(&mutex_);
    open_ = false;
  }
  void Open(absl::Status failure = absl::OkStatus()) {
    absl::MutexLock lock(&mutex_);
    failure_ = std::move(failure);
    open_ = true;
  }
  void AwaitEntered(int commits) {
    absl::MutexLock lock(&mutex_);
    const auto entered = [&]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return entered_ >= commits; };
    mutex_.Await(absl::Condition(&entered));
  }
  int entered() const {
    absl::MutexLock lock(&mutex_);
    return entered_;
  }

 private:
  store::MemoryStore base_;
  mutable absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  int entered_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  store::Space space_ ABSL_GUARDED_BY(mutex_);
};

class LagRecorder : public TurnObserver {
 public:
  SteadyTime AfterTurn(core::Core&, absl::Span<const JobId>, const Time&,
                       std::vector<Release>&) override {
    return SteadyTime::Infinite();
  }
  void OnLag(absl::Duration lag) override {
    absl::MutexLock lock(&mutex_);
    longest_ = std::max(longest_, lag);
  }
  absl::Duration longest() const {
    absl::MutexLock lock(&mutex_);
    return longest_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Duration longest_ ABSL_GUARDED_BY(mutex_);
};

class CoreLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    core::Options options;
    options.incarnation = Incarnation(7);
    auto core = std::make_unique<core::Core>(options);
    const auto loaded = core->Load({}, Clock());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_TRUE(store_.Commit(loaded->writes).ok());
    commits_at_start_ = store_.entered();
    CoreLoop::Options loop_options;
    loop_options.clock = [this] { return Clock(); };
    loop_options.cpu_clock = [this] {
      absl::MutexLock lock(&mutex_);
      return cpu_;
    };
    loop_options.deliver = [this](core::Effects effects) {
      absl::MutexLock lock(&mutex_);
      for (core::Reply& reply : effects.replies) {
        released_.push_back(absl::StrCat("reply ", reply.request.value(), " ",
                                         absl::StatusCodeToString(reply.job.status().code())));
      }
    };
    loop_options.on_commit_failure = [this](const absl::Status& status) {
      failure_ = status;
      failed_.Notify();
    };
    loop_options.observer = &lag_;
    loop_options.is_open = [this](SessionId id) {
      absl::MutexLock lock(&mutex_);
      return ended_.count(id) == 0;
    };
    loop_ = std::make_unique<CoreLoop>(std::move(core), store_, std::move(loop_options));
    loop_->Start();
  }

  Time Clock() const {
    absl::MutexLock lock(&mutex_);
    return {now_, absl::UnixEpoch() + now_.since_start()};
  }
  void Advance(absl::Duration by) {
    {
      absl::MutexLock lock(&mutex_);
      now_ = now_ + by;
    }
    loop_->Wake();
  }

  // Opens and closes a node's session: the node is SUSPECT until its lease of 10 s ends.
  void LoseSession() {
    ASSERT_TRUE(loop_->Push(Opened(SessionId(1))));
    ASSERT_TRUE(loop_->Push(core::SessionClosed{SessionId(1)}));
    AwaitStepped();
  }
  static core::SessionOpened Opened(SessionId session) {
    core::SessionOpened opened;
    opened.session = session;
    opened.hello.set_protocol_version(kProtocolVersion);
    opened.hello.set_node_name(absl::StrCat("node-", session.value()));
    opened.hello.set_incarnation(5);
    return opened;
  }
  v1::NodeState NodeState() {
    v1::NodeState state = v1::NODE_STATE_UNSPECIFIED;
    absl::Notification done;
    EXPECT_TRUE(loop_->PushQuery([&](core::Core& core, const Time& now) -> Release {
      state = core.ListNodes(now).at(0).state();
      done.Notify();
      return nullptr;
    }));
    done.WaitForNotification();
    return state;
  }

  void Submit(uint64_t request) {
    core::SubmitJob submit;
    submit.request = RequestId(request);
    submit.job_id = JobId(absl::StrCat("job-", request));
    submit.spec.set_name("job");
    submit.spec.add_command("true");
    spec::ApplyDefaults(submit.spec);
    ASSERT_TRUE(loop_->Push(std::move(submit)));
  }
  // Queues a query whose release adds `name`.
  void Query(const std::string& name) {
    ASSERT_TRUE(loop_->PushQuery([this, name](core::Core&, const Time&) -> Release {
      return [this, name] {
        absl::MutexLock lock(&mutex_);
        released_.push_back(name);
      };
    }));
  }
  // Waits until the core has stepped all events pushed before. Their turn may still be in progress.
  void AwaitStepped() {
    absl::Notification stepped;
    ASSERT_TRUE(loop_->PushQuery([&stepped](core::Core&, const Time&) -> Release {
      stepped.Notify();
      return nullptr;
    }));
    stepped.WaitForNotification();
  }
  void AwaitReleased(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return released_.size() >= count;
    };
    mutex_.Await(absl::Condition(&enough));
  }
  std::vector<std::string> released() const {
    absl::MutexLock lock(&mutex_);
    return released_;
  }

  GatedStore store_;
  int commits_at_start_ = 0;
  LagRecorder lag_;
  absl::Notification failed_;
  absl::Status failure_;
  mutable absl::Mutex mutex_;
  SteadyTime now_ ABSL_GUARDED_BY(mutex_) = SteadyTime(absl::Hours(1));
  absl::Duration cpu_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> released_ ABSL_GUARDED_BY(mutex_);
  std::set<SessionId> ended_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<CoreLoop> loop_;
};

TEST_F(CoreLoopTest, ReleasesNothingBeforeItsCommit) {
  store_.Close();
  Submit(1);
  store_.AwaitEntered(commits_at_start_ + 1);
  // The query has seen a job that is not on disk yet, so its release waits as well.
  Query("query");
  AwaitStepped();
  EXPECT_THAT(released(), IsEmpty());
  store_.Open();
  AwaitReleased(2);
  EXPECT_THAT(released(), ElementsAre("reply 1 OK", "query"));
}

TEST_F(CoreLoopTest, ReleasesAtOnceWithoutPendingCommit) {
  store_.Close();
  Query("query");
  AwaitReleased(1);
  EXPECT_EQ(store_.entered(), commits_at_start_);
  store_.Open();
}

TEST_F(CoreLoopTest, MeasuresSpaceOnceASecond) {
  store_.SetSpace({.free_bytes = 1000, .reserved_bytes = 1000});
  Submit(1);
  AwaitReleased(1);
  store_.SetSpace({.free_bytes = 1 << 20, .reserved_bytes = 1000});
  Submit(2);
  AwaitReleased(2);
  Advance(absl::Seconds(1));
  Submit(3);
  AwaitReleased(3);
  EXPECT_THAT(released(), ElementsAre("reply 1 RESOURCE_EXHAUSTED", "reply 2 RESOURCE_EXHAUSTED",
                                      "reply 3 OK"));
}

TEST_F(CoreLoopTest, TurnsThatWaitForTheDiskTakeSpace) {
  store_.Close();
  Submit(1);
  store_.AwaitEntered(commits_at_start_ + 1);
  // There is space for a small job, but the disk does not have the first one yet.
  size_t memory = 0;
  absl::Notification read;
  ASSERT_TRUE(loop_->PushQuery([&](core::Core& core, const Time&) -> Release {
    memory = core.memory().used();
    read.Notify();
    return nullptr;
  }));
  read.WaitForNotification();
  store_.SetSpace({.free_bytes = 1500 + memory, .reserved_bytes = 1000});
  Advance(absl::Seconds(1));
  Submit(2);
  AwaitStepped();
  store_.Open();
  AwaitReleased(2);
  Advance(absl::Seconds(1));
  Submit(3);
  AwaitReleased(3);
  EXPECT_THAT(released(), ElementsAre("reply 1 OK", "reply 2 RESOURCE_EXHAUSTED", "reply 3 OK"));
}

TEST_F(CoreLoopTest, TurnsShareCommitAndKeepOrder) {
  store_.Close();
  Submit(1);
  store_.AwaitEntered(commits_at_start_ + 1);
  for (uint64_t i = 2; i <= 20; ++i) {
    Submit(i);
    AwaitStepped();
  }
  // One more turn, after which the turn of the last submission has been handed over.
  AwaitStepped();
  store_.Open();
  AwaitReleased(20);
  EXPECT_EQ(store_.entered(), commits_at_start_ + 2);
  const std::vector<std::string> order = released();
  for (uint64_t i = 1; i <= 20; ++i) EXPECT_EQ(order[i - 1], absl::StrCat("reply ", i, " OK"));
}

TEST_F(CoreLoopTest, FailedCommitReleasesNothing) {
  store_.Close();
  Submit(1);
  store_.AwaitEntered(commits_at_start_ + 1);
  Submit(2);
  Query("query");
  store_.Open(absl::ResourceExhaustedError("disk full"));
  failed_.WaitForNotification();
  EXPECT_EQ(failure_.message(), "disk full");
  Submit(3);
  AwaitStepped();
  loop_->Stop();
  EXPECT_THAT(released(), IsEmpty());
}

TEST_F(CoreLoopTest, StopReleasesQueuedItemsAndRefusesNewOnes) {
  store_.Close();
  for (uint64_t i = 1; i <= 300; ++i) Submit(i);
  Query("query");
  store_.Open();
  loop_->Stop();
  EXPECT_EQ(released().size(), 301);
  EXPECT_FALSE(loop_->Push(core::SessionClosed{SessionId(1)}));
  EXPECT_FALSE(loop_->PushQuery([](core::Core&, const Time&) -> Release { return nullptr; }));
}

TEST_F(CoreLoopTest, DropsHellosOfEndedSessions) {
  {
    absl::MutexLock lock(&mutex_);
    ended_.insert(SessionId(2));
  }
  absl::Notification taken;
  for (const uint64_t id : {2, 3}) {
    ASSERT_TRUE(loop_->Push(Opened(SessionId(id)), [&taken, id] {
      if (id == 2) taken.Notify();
    }));
  }
  ASSERT_TRUE(loop_->Push(core::SessionClosed{SessionId(2)}));
  AwaitStepped();
  EXPECT_TRUE(taken.HasBeenNotified());
  size_t nodes = 0;
  absl::Notification done;
  ASSERT_TRUE(loop_->PushQuery([&](core::Core& core, const Time& now) -> Release {
    nodes = core.ListNodes(now).size();
    done.Notify();
    return nullptr;
  }));
  done.WaitForNotification();
  EXPECT_EQ(nodes, 1u) << "node-3 only";
}

TEST_F(CoreLoopTest, TakenRunsWhenEventLeavesQueue) {
  absl::Notification taken;
  ASSERT_TRUE(loop_->Push(core::SessionClosed{SessionId(1)}, [&taken] { taken.Notify(); }));
  taken.WaitForNotification();
}

TEST_F(CoreLoopTest, KeepsDeadlinesAndReportsLag) {
  LoseSession();
  EXPECT_EQ(NodeState(), v1::SUSPECT);
  EXPECT_EQ(lag_.longest(), absl::ZeroDuration());
  // The clock jumps far beyond the lease: the coordinator was suspended, so the lease is extended.
  Advance(absl::Seconds(60));
  AwaitStepped();
  EXPECT_EQ(NodeState(), v1::SUSPECT);
  EXPECT_EQ(lag_.longest(), absl::Seconds(50));
  // This time the node is silent. Its lease was extended by 50 s, or by 60 s if the jump found the
  // thread before its wait, and by 2 s for catching up.
  for (int i = 0; i < 130; ++i) {
    Advance(absl::Milliseconds(100));
    AwaitStepped();
  }
  EXPECT_EQ(NodeState(), v1::LOST);
}

// Under load, every turn takes longer than an idle loop would ever be late.
TEST_F(CoreLoopTest, DeadlinesDoNotRecedeUnderLoad) {
  LoseSession();
  for (int turn = 0; turn < 26; ++turn) {
    if (turn < 25) EXPECT_EQ(NodeState(), v1::SUSPECT) << turn;
    ASSERT_TRUE(loop_->PushQuery([this](core::Core&, const Time&) -> Release {
      absl::MutexLock lock(&mutex_);
      now_ = now_ + absl::Milliseconds(400);
      cpu_ += absl::Milliseconds(400);
      return nullptr;
    }));
    AwaitStepped();
  }
  EXPECT_EQ(NodeState(), v1::LOST);
}

TEST_F(CoreLoopTest, DelayIsAgeOfOldestItem) {
  EXPECT_EQ(loop_->Delay(), absl::ZeroDuration());
  absl::Notification entered;
  absl::Notification leave;
  ASSERT_TRUE(loop_->PushQuery([&](core::Core&, const Time&) -> Release {
    entered.Notify();
    leave.WaitForNotification();
    return nullptr;
  }));
  entered.WaitForNotification();
  Advance(absl::Seconds(40));
  EXPECT_EQ(loop_->Delay(), absl::Seconds(40));
  leave.Notify();
  loop_->Stop();  // the query waits for objects of this scope
}

}  // namespace
}  // namespace muster::service
