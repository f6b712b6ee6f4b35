// The memory and the disk that jobs of one owner may use, in the whole core.
#include "common/limits.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/testing/harness.h"
#include "coordinator/core/testing/totals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeCommandSpec;
using ::testing::Pair;
using Message = v1::CoordinatorMessage;

Options WithMemory(size_t bytes) {
  Options options = Harness::DefaultOptions();
  options.job_memory = bytes;
  return options;
}

// The spec of a command job that takes this memory and a little more.
v1::JobSpec SpecOf(size_t bytes) {
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.add_command(std::string(bytes, 'x'));
  return spec;
}

size_t CountKeys(const Harness& cluster, const std::string& prefix) {
  size_t count = 0;
  for (const auto& [key, value] : cluster.records()) count += absl::StartsWith(key, prefix);
  return count;
}

class Cluster : public Harness {
 public:
  explicit Cluster(size_t memory = Options().job_memory) : Harness(WithMemory(memory)) {}
  explicit Cluster(const Options& options) : Harness(options) {}

  absl::Status SubmitAs(const std::string& owner, const std::string& id, v1::JobSpec spec,
                        int tasks = 0, const std::string& key = "") {
    SubmitJob event{RequestId(++request_), JobId(id), std::move(spec), key, Actor{owner}};
    for (int i = 0; i < tasks; ++i) {
      v1::JobSpec task = event.spec;
      task.add_command(absl::StrCat(i));
      event.tasks.push_back({std::make_shared<const v1::JobSpec>(std::move(task))});
    }
    if (tasks > 0) event.spec.mutable_array()->set_count(tasks);
    const Effects effects = Step(event);
    logged = effects.logs;
    return effects.replies.at(0).job.status();
  }
  void CancelAs(const std::string& owner, const std::string& id) {
    Advance(absl::Seconds(1));
    Step(CancelJob{RequestId(++request_), id, std::nullopt, Actor{owner}});
  }
  absl::Status RemoveAs(const std::string& owner, const std::string& id) {
    return Step(RemoveJob{RequestId(++request_), id, Actor{owner}}).replies.at(0).job.status();
  }
  // Returns the code of the answer.
  int PutKey(const std::string& node, const std::string& job, const std::string& key,
             const std::string& value) {
    v1::WorkerMessage message;
    message.mutable_put_key()->set_job_id(job);
    message.mutable_put_key()->set_generation(Get(job).generation());
    message.mutable_put_key()->set_key(key);
    message.mutable_put_key()->set_value(value);
    const Effects effects = SendMessage(node, message);
    return FindSent(effects, session(node), Message::kKeyValue)->key_value().code();
  }
  bool Knows(const std::string& job) { return core().ResolveJob(job).ok(); }

  std::vector<std::string> logged;  // by the last submission

 private:
  uint64_t request_ = 100000;
};

// -------------------------------------------------------------------------------------------------
// Memory.

TEST(JobMemory, FinishedJobsOfTheOwnerMakeRoom) {
  Cluster cluster(1'600'000);
  for (const char* id : {"a1", "a2", "a3"}) {
    ASSERT_TRUE(cluster.SubmitAs("alice", id, SpecOf(200'000)).ok());
  }
  ASSERT_TRUE(cluster.SubmitAs("bob", "b1", SpecOf(200'000)).ok());
  cluster.CancelAs("bob", "b1");
  cluster.CancelAs("alice", "a2");
  cluster.CancelAs("alice", "a1");
  EXPECT_FALSE(cluster.SubmitAs("alice", "a4", SpecOf(200'000)).ok()) << "within a minute";
  EXPECT_TRUE(cluster.Knows("a2"));
  cluster.Advance(absl::Minutes(1));
  ASSERT_TRUE(cluster.SubmitAs("alice", "a4", SpecOf(200'000)).ok());
  EXPECT_FALSE(cluster.Knows("a2"));
  EXPECT_TRUE(cluster.Knows("a1"));
  ASSERT_TRUE(cluster.SubmitAs("alice", "a5", SpecOf(200'000)).ok());
  EXPECT_FALSE(cluster.Knows("a1"));

  const absl::Status refused = cluster.SubmitAs("alice", "a6", SpecOf(200'000));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("the jobs of alice use "), HasSubstr("the limit of 800000;")));
  EXPECT_FALSE(cluster.SubmitAs("alice", "array", SpecOf(20'000), /*tasks=*/10).ok());
  EXPECT_TRUE(cluster.Knows("b1"));
  EXPECT_TRUE(cluster.SubmitAs("bob", "b2", SpecOf(200'000)).ok());
  cluster.CancelAs("alice", "a3");
  cluster.Advance(absl::Minutes(1));
  EXPECT_TRUE(cluster.SubmitAs("alice", "a6", SpecOf(200'000)).ok());
}

TEST(JobMemory, EvictionsAreCountedAndLogged) {
  Cluster cluster(1'600'000);
  std::vector<std::string> warnings;
  for (int i = 0; i < 8; ++i) {
    const std::string id = absl::StrCat("a", i);
    ASSERT_TRUE(cluster.SubmitAs("alice", id, SpecOf(200'000)).ok());
    for (const std::string& line : cluster.logged) warnings.push_back(absl::StrCat(i, ": ", line));
    cluster.CancelAs("alice", id);
    cluster.Advance(absl::Seconds(29));
  }
  // The jobs a0 to a4 are deleted, one every 30 seconds.
  const auto warning = [](int i, int first) {
    return absl::StrCat(i,
                        ": warning: finished jobs of alice are deleted earlier than --keep-jobs "
                        "requires, job a",
                        first,
                        " first, because jobs may use no more memory; raise --job-memory or remove "
                        "finished ones with muster rm");
  };
  EXPECT_THAT(warnings, ElementsAre(warning(3, 0), warning(5, 2), warning(7, 4)));
  const Stats stats = cluster.core().TakeStats();
  EXPECT_EQ(testing::TotalOf(stats, "muster_jobs_evicted_total", {"count"}), 0);
  EXPECT_EQ(testing::TotalOf(stats, "muster_jobs_evicted_total", {"memory"}), 5);
}

TEST(JobMemory, KeysOfEvictedJobsStayUsed) {
  Options options = WithMemory(1'600'000);
  options.keep_jobs = 4;
  Cluster cluster(options);
  const auto run = [&](const std::string& id, const std::string& key) {
    absl::Status status = cluster.SubmitAs("alice", id, SpecOf(200'000), 0, key);
    cluster.CancelAs("alice", id);
    cluster.Advance(absl::Minutes(1));
    return status;
  };
  for (const char* id : {"a0", "a1", "a2", "a3"}) ASSERT_TRUE(run(id, id).ok());
  EXPECT_FALSE(cluster.Knows("a0"));
  for (int i = 0; i < 2; ++i) {
    const absl::Status repeated = run("again", "a0");
    EXPECT_EQ(repeated.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(repeated.message()),
                HasSubstr("idempotency key a0 was already used for job a0, which has finished and "
                          "was deleted to make room"));
    EXPECT_TRUE(absl::IsAborted(run("a0", ""))) << "its record is kept";
    cluster.Restart();
  }
  EXPECT_EQ(CountKeys(cluster, "event/a0/"), 0u);
  // Four newer ones have finished.
  ASSERT_TRUE(run("a4", "a4").ok());
  cluster.Run(absl::Minutes(1));
  EXPECT_EQ(CountKeys(cluster, "job/a0"), 0u);
  EXPECT_TRUE(run("again", "a0").ok());
}

TEST(JobMemory, DryRunReturnsTheErrorOfTheSubmission) {
  Cluster cluster(1'600'000);
  const auto check_refused = [&](const std::string& id, size_t bytes, const std::string& key) {
    SubmitJob event{RequestId(7), JobId(id), SpecOf(bytes), key, Actor{"alice"}};
    event.spec_digest = absl::StrCat(bytes);
    // A copy, as the step takes one: strings may have spare capacity.
    const absl::Status dry_run = cluster.core().CheckSubmit(SubmitJob(event), cluster.now());
    EXPECT_FALSE(dry_run.ok());
    EXPECT_EQ(cluster.Step(event).replies.at(0).job.status(), dry_run);
  };
  SubmitJob first{RequestId(7), JobId("a1"), SpecOf(500'000), "key", Actor{"alice"}};
  first.spec_digest = "500000";
  EXPECT_TRUE(cluster.core().CheckSubmit(first, cluster.now()).ok());
  EXPECT_FALSE(cluster.Knows("a1"));
  ASSERT_TRUE(cluster.Step(first).replies.at(0).job.ok());
  EXPECT_TRUE(cluster.core().CheckSubmit(first, cluster.now()).ok()) << "a repeated submission";
  check_refused("a2", 500'000, "");
  check_refused("a2", 1, "key");
  check_refused("a2", 1, std::string(limits::kIdempotencyKeyLength + 1, 'x'));
  cluster.core().SetSpace({.free_bytes = 10, .reserved_bytes = 1});
  check_refused("a2", 1, "");
  cluster.core().SetSpace({});

  cluster.CancelAs("alice", "a1");
  cluster.Advance(absl::Minutes(1));
  const SubmitJob second{RequestId(7), JobId("a2"), SpecOf(500'000), "", Actor{"alice"}};
  EXPECT_TRUE(cluster.core().CheckSubmit(second, cluster.now()).ok());
  EXPECT_TRUE(cluster.Knows("a1")) << "a dry run deletes nothing";
  check_refused("a3", 900'000, "");
  EXPECT_TRUE(cluster.Knows("a1")) << "neither does a refused submission";
  EXPECT_TRUE(cluster.Step(second).replies.at(0).job.ok());
  EXPECT_FALSE(cluster.Knows("a1"));
  check_refused("a3", 1, "key");
}

TEST(JobMemory, FinishedJobsOfOthersMakeRoomInTheTotal) {
  Cluster cluster(1'600'000);
  for (const char* id : {"a1", "a2", "a3"}) {
    ASSERT_TRUE(cluster.SubmitAs("alice", id, SpecOf(200'000)).ok());
    cluster.CancelAs("alice", id);
  }
  cluster.Advance(absl::Minutes(1));
  for (const char* id : {"b1", "b2", "b3"}) {
    ASSERT_TRUE(cluster.SubmitAs("bob", id, SpecOf(200'000)).ok());
  }
  for (const char* id : {"c1", "c2"}) {
    ASSERT_TRUE(cluster.SubmitAs("carol", id, SpecOf(200'000)).ok());
  }
  EXPECT_FALSE(cluster.Knows("a1"));
  EXPECT_TRUE(cluster.Knows("a2"));
  // The owner's own limit does not delete jobs of others.
  EXPECT_FALSE(cluster.SubmitAs("bob", "b4", SpecOf(200'000)).ok());
  EXPECT_TRUE(cluster.Knows("a2"));
}

TEST(JobMemory, KeysCountUntilTheGenerationEnds) {
  Cluster cluster(1'600'000);
  cluster.Join("a");
  cluster.Join("b");
  ASSERT_TRUE(cluster.SubmitAs("alice", "a1", SpecOf(100)).ok());
  ASSERT_TRUE(cluster.SubmitAs("bob", "b1", SpecOf(100)).ok());
  for (const char* job : {"a1", "b1"}) cluster.ReportPhaseOfAll(job, v1::STARTED);
  const std::string value(limits::kValueBytes, 'v');
  int puts = 0;
  int code = 0;
  while (code == 0 && puts < 100) code = cluster.PutKey("a", "a1", absl::StrCat(puts++), value);
  EXPECT_EQ(code, static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(puts, 13) << "12 values of 64 KiB fit in 800,000 bytes";
  EXPECT_EQ(cluster.PutKey("a", "a1", "0", value), 0) << "a repeated put";
  EXPECT_EQ(cluster.PutKey("b", "b1", "0", value), 0);
  EXPECT_EQ(cluster.State("a1"), v1::RUNNING);
  EXPECT_FALSE(cluster.SubmitAs("alice", "a2", SpecOf(500'000)).ok());

  cluster.ReportExit("a", "a1", 0, ExitWith(0));
  EXPECT_EQ(cluster.State("a1"), v1::SUCCEEDED);
  EXPECT_TRUE(cluster.SubmitAs("alice", "a2", SpecOf(500'000)).ok());
}

TEST(JobMemory, EventsBeyondItReplaceOlderOnes) {
  Cluster cluster(40'000);
  const auto toggle = [&](int times) {
    for (int i = 0; i < times; ++i) {
      cluster.Step(HoldJob{RequestId(1), "a1", Actor{"alice"}});
      cluster.Step(ReleaseJob{RequestId(1), "a1", Actor{"alice"}});
    }
  };
  ASSERT_TRUE(cluster.SubmitAs("alice", "a1", SpecOf(1000)).ok());
  toggle(100);
  EXPECT_LE(cluster.core().memory().used(), 20'300u);
  EXPECT_GE(cluster.EventTypes("a1").size(), limits::kEventsWithoutRoom);
}

TEST(JobMemory, FewerGenerationsAreKeptBeyondIt) {
  Cluster cluster(40'000);
  cluster.Join("a");
  v1::JobSpec spec = SpecOf(12'000);
  spec.mutable_restart()->set_max(100);
  ASSERT_TRUE(cluster.SubmitAs("alice", "a1", spec).ok());
  size_t most = 0;
  for (int i = 0; i < 20; ++i) {
    cluster.ReportPhaseOfAll("a1", v1::STARTED);
    v1::ExitInfo exit = ExitWith(1);
    exit.mutable_failure()->set_message(std::string(2000, 'x'));
    cluster.ReportExit("a", "a1", 0, exit);
    cluster.Run(absl::Minutes(10), {"a"});
    most = std::max(most, CountKeys(cluster, "generation/a1/"));
  }
  EXPECT_GE(cluster.Get("a1").generation(), 10u);
  EXPECT_LE(most, 5u);
}

std::vector<store::Record> RecordsOf(const Harness& cluster) {
  std::vector<store::Record> records;
  for (const auto& [key, value] : cluster.records()) records.push_back({key, value});
  return records;
}

TEST(JobMemory, StartsOnAStoreThatExceedsIt) {
  Cluster cluster;
  for (const char* id : {"a1", "a2", "a3"}) {
    ASSERT_TRUE(cluster.SubmitAs("alice", id, SpecOf(200'000)).ok());
  }
  cluster.CancelAs("alice", "a1");
  cluster.Advance(absl::Minutes(1));
  for (const size_t memory : {500'000, 100'000}) {
    Core core(WithMemory(memory));
    const absl::StatusOr<Effects> loaded = core.Load(RecordsOf(cluster), cluster.now());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_FALSE(core.ResolveJob("a1").ok());
    EXPECT_TRUE(core.ResolveJob("a2").ok());
    EXPECT_TRUE(core.ResolveJob("a3").ok());
    EXPECT_THAT(loaded->logs, ::testing::Contains(HasSubstr("warning: the jobs of alice use 4")));
    const Effects refused = core.Step(
        SubmitJob{RequestId(1), JobId("a4"), SpecOf(1), "", Actor{"alice"}}, cluster.now());
    EXPECT_TRUE(absl::IsResourceExhausted(refused.replies.at(0).job.status()));
  }
}

// A cluster whose jobs change at random, with a model of their memory.
class RandomJobs {
 public:
  explicit RandomJobs(uint64_t seed) : random_(seed) { Join(); }

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      Change();
      const double expected = Expected();
      ASSERT_NEAR(cluster_.core().memory().used(), expected, 0.1 * expected + 5000) << "step " << i;
    }
  }
  // Ends and removes all jobs.
  void RemoveAll() {
    for (const v1::Job& job : Jobs()) {
      if (!IsTerminal(job.state())) cluster_.CancelAs(job.owner(), job.job_id());
      if (IsActive(cluster_.State(job.job_id()))) {
        cluster_.ReportExit("a", job.job_id(), 0, ExitWith(1));
      }
    }
    for (const v1::Job& job : Jobs()) {
      EXPECT_TRUE(cluster_.RemoveAs(job.owner(), job.job_id()).ok()) << job.ShortDebugString();
    }
    EXPECT_EQ(cluster_.core().memory().used(), 0u);
    EXPECT_THAT(cluster_.core().memory().by_owner(), IsEmpty());
  }
  int refused() const { return refused_; }
  int evicted() const { return evicted_; }

 private:
  int Draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  std::vector<v1::Job> Jobs() {
    v1::ListJobsRequest all;
    all.set_include_finished(true);
    return cluster_.core().ListJobs(all, cluster_.now());
  }
  // The node returns with the ranks that it had.
  void Join() {
    v1::Hello hello = cluster_.MakeHello("a", 4);
    for (const v1::Job& job : Jobs()) {
      if (!IsActive(job.state())) continue;
      *hello.add_inventory() =
          cluster_.MakeInventory(job.job_id(), {Harness::MakeReport(0, v1::STARTED)});
    }
    cluster_.Open(hello);
  }

  void Change() {
    cluster_.Advance(absl::Minutes(1));
    const int kind = Draw(20);
    const std::string owner = Draw(2) == 0 ? "alice" : "bob";
    std::vector<v1::Job> jobs = Jobs();
    if (kind < 6 || jobs.empty()) {
      const absl::Status submitted =
          cluster_.SubmitAs(owner, absl::StrCat("job", ++submitted_), SpecOf(Draw(40'000)),
                            /*tasks=*/kind == 0 ? 3 : 0);
      if (!submitted.ok()) ++refused_;
      if (submitted.ok() && Jobs().size() <= jobs.size()) ++evicted_;
      return;
    }
    if (kind == 6) {
      cluster_.Restart();
      keys_.clear();
      return Join();
    }
    const v1::Job& job = jobs[Draw(static_cast<int>(jobs.size()))];
    const std::string& id = job.job_id();
    const Actor actor{job.owner()};
    if (kind == 7) {
      (void)cluster_.RemoveAs(job.owner(), id);
    } else if (kind < 10) {
      cluster_.CancelAs(job.owner(), id);
    } else if (kind < 12) {
      cluster_.Step(HoldJob{RequestId(1), id, actor});
      cluster_.Step(ReleaseJob{RequestId(1), id, actor});
    } else if (kind < 15 && IsActive(job.state())) {
      cluster_.ReportExit("a", id, 0, ExitWith(Draw(2)));
    } else if (IsActive(job.state()) && job.state() != v1::STOPPING) {
      const std::string key = absl::StrCat("key", Draw(5));
      std::string value(Draw(5000), 'v');
      const bool is_new = keys_[{id, job.generation()}].count(key) == 0;
      if (cluster_.PutKey("a", id, key, value) == 0 && is_new) {
        keys_[{id, job.generation()}][key] = 128 + key.size() + value.size();
      }
    }
  }

  size_t Expected() {
    size_t bytes = 0;
    for (const v1::Job& job : Jobs()) {
      bytes += MemoryOf(job.spec(), 1);
      const auto events = cluster_.core().ListEvents(JobId(job.job_id()), 0);
      for (const v1::JobEvent& event : *events) {
        bytes += sizeof(event) + event.type().size() + event.message().size();
      }
      if (!IsActive(job.state())) continue;
      const auto keys = keys_.find({job.job_id(), job.generation()});
      if (keys == keys_.end()) continue;
      for (const auto& [key, size] : keys->second) bytes += size;
    }
    return bytes;
  }

  Cluster cluster_{800'000};
  std::mt19937_64 random_;
  int submitted_ = 0;
  int refused_ = 0;
  int evicted_ = 0;
  std::map<std::pair<std::string, uint64_t>, std::map<std::string, size_t>> keys_;
};

TEST(JobMemory, IsRightAfterAnySequenceOfChanges) {
  int refused = 0;
  int evicted = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    RandomJobs jobs(seed);
    jobs.Run(200);
    jobs.RemoveAll();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
    refused += jobs.refused();
    evicted += jobs.evicted();
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(evicted, 0);
}

// -------------------------------------------------------------------------------------------------
// Disk.

TEST(StoreSpace, SubmissionsLeaveTheReserve) {
  Cluster cluster;
  const auto set_free = [&](uint64_t bytes) {
    cluster.core().SetSpace({.free_bytes = bytes, .reserved_bytes = 1'000'000});
  };
  set_free(2'000'000);
  ASSERT_TRUE(cluster.SubmitAs("alice", "a1", SpecOf(200'000)).ok());
  // The records of all jobs can still be written again.
  const absl::Status refused = cluster.SubmitAs("bob", "b1", SpecOf(250'000));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("the disk of the coordinator's store has 1562 KiB free"),
                    HasSubstr("the last 976 KiB are kept for jobs that run; remove finished jobs "
                              "with muster rm")));
  EXPECT_FALSE(cluster.SubmitAs("bob", "array", SpecOf(30'000), /*tasks=*/10).ok());
  EXPECT_TRUE(cluster.SubmitAs("bob", "b1", SpecOf(1000)).ok());

  set_free(0);
  const auto set_secret = [&](const std::string& value) {
    return cluster.Step(SetSecret{RequestId(1), "KEY", value, Actor{"bob"}})
        .replies.at(0)
        .job.status();
  };
  EXPECT_EQ(set_secret("value").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(set_secret("").ok()) << "removing needs no space";
  set_free(10'000'000);
  EXPECT_TRUE(set_secret("value").ok());
  EXPECT_TRUE(cluster.SubmitAs("bob", "b2", SpecOf(200'000)).ok());
}

TEST(StoreSpace, RunningJobsEndWithoutWhatIsNotNeeded) {
  Cluster cluster;
  cluster.Join("a");
  ASSERT_TRUE(cluster.SubmitAs("alice", "a1", SpecOf(100)).ok());
  ASSERT_TRUE(cluster.SubmitAs("alice", "a2", SpecOf(100)).ok());
  ASSERT_TRUE(cluster.SubmitAs("alice", "a3", SpecOf(100)).ok());
  const auto toggle = [&] {
    for (int i = 0; i < 50; ++i) {
      cluster.Step(HoldJob{RequestId(1), "a3", Actor{"alice"}});
      cluster.Step(ReleaseJob{RequestId(1), "a3", Actor{"alice"}});
    }
  };
  toggle();
  EXPECT_EQ(CountKeys(cluster, "event/a3/"), 101u);
  cluster.core().SetSpace({.free_bytes = 0, .reserved_bytes = 1});

  cluster.ReportPhaseOfAll("a1", v1::STARTED);
  EXPECT_EQ(cluster.State("a1"), v1::RUNNING);
  cluster.ReportExit("a", "a1", 0, ExitWith(0));
  EXPECT_EQ(cluster.State("a1"), v1::SUCCEEDED);
  EXPECT_EQ(cluster.State("a2"), v1::STARTING);
  v1::WorkerMessage tail;
  tail.mutable_log_tail()->set_job_id("a1");
  tail.mutable_log_tail()->set_generation(1);
  tail.mutable_log_tail()->mutable_stdout_end()->set_data("the end\n");
  cluster.SendMessage("a", tail);
  EXPECT_EQ(CountKeys(cluster, "log/"), 0u);
  EXPECT_EQ(CountKeys(cluster, "history/a2"), 0u);
  toggle();
  EXPECT_EQ(CountKeys(cluster, "event/a3/"), limits::kEventsWithoutRoom);

  cluster.core().SetSpace({.free_bytes = 10, .reserved_bytes = 1});
  cluster.SendHeartbeat("a");
  EXPECT_EQ(CountKeys(cluster, "history/a2"), 1u);
}

}  // namespace
}  // namespace muster::core
