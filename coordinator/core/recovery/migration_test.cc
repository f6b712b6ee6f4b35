// Opens stores written by coordinators with older schemas. The files in testdata describe their
// contents.
#include "coordinator/core/recovery/migration.h"

#include <sqlite3.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "common/version.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"
#include "coordinator/core/recovery/read_records.h"
#include "coordinator/core/testing/harness.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::CountSent;
using ::testing::ElementsAre;
using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::KilledBy;
using Message = v1::CoordinatorMessage;

class OldStore : public ::testing::Test {
 protected:
  explicit OldStore(uint32_t schema = 1, int64_t wall_seconds = 1'795'260'560)
      : file_(absl::StrCat("coordinator/core/recovery/testdata/schema_", schema, ".sql")),
        now_{SteadyTime(absl::Hours(1)), absl::FromUnixSeconds(wall_seconds)} {}

  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "migration_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    std::ifstream file(file_);
    std::stringstream sql;
    sql << file.rdbuf();
    ASSERT_FALSE(sql.str().empty()) << file_;
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(Path().c_str(), &database), SQLITE_OK);
    const int code = sqlite3_exec(database, sql.str().c_str(), nullptr, nullptr, nullptr);
    EXPECT_EQ(code, SQLITE_OK) << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path() const { return directory_ + "/coordinator.sqlite"; }
  std::unique_ptr<store::SqliteStore> Open(const store::SqliteOptions& options = {}) const {
    auto store = store::SqliteStore::Open(Path(), options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  std::vector<store::Record> Scan() const { return *Open()->Scan(""); }

  // Starts a coordinator on the store.
  void Start() {
    const std::unique_ptr<store::SqliteStore> store = Open();
    core_ = std::make_unique<Core>(Harness::DefaultOptions());
    absl::StatusOr<Effects> loaded = core_->Load(*store->Scan(""), now_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    started_ = *std::move(loaded);
    ASSERT_TRUE(store->Commit(started_.writes).ok());
  }
  Effects Step(const Event& event) {
    Effects effects = core_->Step(event, now_);
    EXPECT_TRUE(Open()->Commit(effects.writes).ok());
    return effects;
  }
  v1::Job Get(const std::string& name) const {
    const absl::StatusOr<JobId> id = core_->ResolveJob(name + "-");
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *core_->GetJob(*id, /*detailed=*/true, now_) : v1::Job();
  }
  std::vector<std::string> EventTypes(const std::string& name) const {
    std::vector<std::string> types;
    const auto events = core_->ListEvents(JobId(Get(name).job_id()), 0);
    for (const v1::JobEvent& event : *events) types.push_back(event.type());
    return types;
  }
  // Reconnects the same worker, with these ranks of its jobs.
  Effects Return(SessionId session, const std::string& node,
                 const std::vector<std::pair<std::string, std::vector<v1::RankReport>>>& ranks) {
    v1::Hello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_node_name(node);
    for (const v1::Node& known : core_->ListNodes(now_)) {
      if (known.name() == node) hello.set_incarnation(known.incarnation());
    }
    for (uint32_t slot = 0; slot < 4; ++slot) hello.add_slots()->set_index(slot);
    for (const auto& [job, reports] : ranks) {
      v1::GenerationReport& report = *hello.add_inventory();
      report.set_job_id(Get(job).job_id());
      report.set_generation(1);
      for (const v1::RankReport& rank : reports) *report.add_ranks() = rank;
    }
    return Step(SessionOpened{session, hello, "127.0.0.1"});
  }
  void Exit(SessionId session, const std::string& job, uint32_t rank, const v1::ExitInfo& exit) {
    v1::WorkerMessage message;
    v1::GenerationReport& report = *message.mutable_report();
    report.set_job_id(Get(job).job_id());
    report.set_generation(1);
    *report.add_ranks() = Harness::MakeReport(rank, v1::EXITED);
    *report.mutable_ranks(0)->mutable_exit() = exit;
    Step(SessionMessage{session, message});
  }

  std::string DescribeJobs() const {
    v1::ListJobsRequest all;
    all.set_include_finished(true);
    std::string jobs;
    for (const v1::Job& job : core_->ListJobs(all, now_)) {
      absl::StrAppend(&jobs, job.spec().name(), " ", v1::JobState_Name(job.state()), " ",
                      job.reason(), " ", job.generation(), " ", job.exit_code(), "\n");
    }
    return jobs;
  }

  std::string directory_;
  const std::string file_;
  Time now_;  // shortly after the coordinator that wrote the store was killed
  std::unique_ptr<Core> core_;
  Effects started_;
};

TEST_F(OldStore, KeepsEveryJob) {
  Start();
  EXPECT_EQ(DescribeJobs(),
            "withdrawn CANCELLED CancelledByUser 0 1\n"
            "held HELD HeldByUser 0 0\n"
            "behind QUEUED WaitingForResources 0 0\n"
            "queued QUEUED WaitingForResources 0 0\n"
            "stopping STOPPING CancelledByUser 1 0\n"
            "running RUNNING Running 1 0\n"
            "moved SUCCEEDED Completed 2 0\n"
            "cancelled CANCELLED CancelledByUser 1 1\n"
            "late TIMED_OUT TimeLimit 1 124\n"
            "failed FAILED RankFailed 2 3\n"
            "recovered SUCCEEDED Completed 2 0\n"
            "succeeded SUCCEEDED Completed 1 0\n"
            "trained SUCCEEDED Completed 1 0\n");

  EXPECT_EQ(Get("trained").summary().losses_size(), 5);
  EXPECT_EQ(Get("queued").idempotency_key(), "nightly-17");
  EXPECT_EQ(Get("queued").spec().priority(), 5);
  EXPECT_EQ(Get("queued").queue_position(), 1u);
  EXPECT_EQ(Get("behind").queue_position(), 2u);
  EXPECT_EQ(Get("stopping").spec().grace_period().seconds(), 600);
}

TEST_F(OldStore, KeepsFailuresAndEvents) {
  Start();
  const v1::Job failed = Get("failed");
  EXPECT_EQ(failed.restarts(), 1u);
  ASSERT_EQ(failed.past_failures_size(), 2);
  EXPECT_EQ(failed.past_failures(0).generation(), 1u);
  EXPECT_EQ(failed.first_failure().generation(), 2u);
  EXPECT_EQ(failed.first_failure().message(), "rank 1 on node-2 exited with code 3");
  EXPECT_EQ(failed.first_failure().exit().stderr_tail(), "Traceback: no such thing\n");
  ASSERT_EQ(failed.ranks_size(), 2);
  EXPECT_EQ(failed.ranks(1).node(), "node-2");
  EXPECT_EQ(failed.ranks(1).exit().exit_code(), 3);
  EXPECT_EQ(Get("recovered").first_failure().exit().exit_code(), 7);
  EXPECT_EQ(Get("moved").first_failure().reason(), reasons::kNodeLost);

  EXPECT_THAT(EventTypes("late"), ElementsAre(events::kSubmitted, events::kPlaced, events::kRunning,
                                              events::kStopping, events::kFinished));
  EXPECT_EQ(EventTypes("failed").size(), 12u);
  EXPECT_EQ(EventTypes("moved").size(), 11u);
  EXPECT_THAT(EventTypes("held"), ElementsAre(events::kSubmitted, events::kHeld));
}

TEST_F(OldStore, KeepsRankMapOfEveryGeneration) {
  Start();
  const absl::StatusOr<Records> records = ReadRecords(Scan());
  ASSERT_TRUE(records.ok()) << records.status();
  const auto& generations = records->generations.at(JobId(Get("moved").job_id()));
  ASSERT_EQ(generations.size(), 2u);
  const v1::GenerationRecord& first = generations.at(Generation(1));
  ASSERT_EQ(first.nodes_size(), 3);
  EXPECT_EQ(first.nodes(0).node(), "node-1");
  EXPECT_EQ(first.nodes(1).node(), "node-2");
  EXPECT_EQ(first.nodes(2).node(), "node-10");
  EXPECT_EQ(first.nodes(2).address(), "127.0.0.1");
  EXPECT_TRUE(first.nodes(2).ranks(1).lost());
  EXPECT_EQ(first.nodes(1).ranks(0).exit().signal(), 15);
  EXPECT_TRUE(first.over());
  EXPECT_EQ(generations.at(Generation(2)).world_size(), 4u);
}

TEST_F(OldStore, LivingGenerationsContinue) {
  Start();
  Return(
      SessionId(1), "node-1",
      {{"running", {Harness::MakeReport(0, v1::STARTED), Harness::MakeReport(1, v1::STARTED)}},
       {"stopping", {Harness::MakeReport(0, v1::STARTED), Harness::MakeReport(1, v1::STARTED)}}});
  Return(SessionId(2), "node-2",
         {{"running", {Harness::MakeReport(2, v1::STARTED), Harness::MakeReport(3, v1::EXITED)}}});
  EXPECT_EQ(Get("running").state(), v1::RUNNING);
  EXPECT_EQ(Get("stopping").state(), v1::STOPPING);
  Exit(SessionId(1), "stopping", 0, KilledBy(9));
  Exit(SessionId(1), "stopping", 1, KilledBy(9));
  EXPECT_EQ(Get("stopping").state(), v1::CANCELLED);
  Exit(SessionId(1), "running", 0, ExitWith(0));
  Exit(SessionId(2), "running", 2, ExitWith(0));
  EXPECT_EQ(Get("running").state(), v1::RUNNING);
  Exit(SessionId(1), "running", 1, ExitWith(0));
  EXPECT_EQ(Get("running").state(), v1::SUCCEEDED);
}

TEST_F(OldStore, IsMigratedOnce) {
  const size_t before = Scan().size();
  Start();
  ASSERT_EQ(started_.logs.size(), 1u);
  // The cluster id, the commit index and the start are added afterwards.
  EXPECT_EQ(started_.logs[0], absl::StrCat("migrating the store from schema 1 to ", kSchemaVersion,
                                           ": ", before, " records become ", Scan().size() - 3));
  const absl::StatusOr<Migration> again = Migrate(Scan());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->from, kSchemaVersion);
  EXPECT_THAT(again->writes, IsEmpty());
  const std::string running = Get("running").SerializeAsString();
  Start();
  EXPECT_THAT(started_.logs, IsEmpty());
  EXPECT_EQ(Get("running").SerializeAsString(), running);
}

TEST_F(OldStore, FailedMigrationLeavesStoreUnchanged) {
  const std::vector<store::Record> before = Scan();
  {
    // The transaction fails because the disk is full.
    const std::unique_ptr<store::SqliteStore> store = Open({/*max_pages=*/1});
    Core core(Harness::DefaultOptions());
    const absl::StatusOr<Effects> loaded = core.Load(before, now_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(store->Commit(loaded->writes).code(), absl::StatusCode::kResourceExhausted);
  }
  const std::vector<store::Record> after = Scan();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].key, before[i].key);
    EXPECT_EQ(after[i].value, before[i].value);
  }
  Start();
  EXPECT_EQ(Get("running").state(), v1::RUNNING);
}

TEST_F(OldStore, RejectsDamagedRecord) {
  std::vector<store::Record> records = Scan();
  for (store::Record& record : records) {
    if (record.key.rfind("generation/", 0) == 0) record.value = "\xff\xff";
  }
  const absl::Status status = Migrate(records).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("generation/"));
}

// ------------------------------------------------------------------------------------------------
// Schema 2.

class StoreOfSchema2 : public OldStore {
 protected:
  StoreOfSchema2() : OldStore(2, 1'795'383'600) {}
};

TEST_F(StoreOfSchema2, KeepsEveryJob) {
  Start();
  EXPECT_EQ(DescribeJobs(),
            "withdrawn CANCELLED CancelledByUser 0 1\n"
            "held HELD HeldByUser 0 0\n"
            "behind QUEUED WaitingForResources 0 0\n"
            "queued QUEUED WaitingForResources 0 0\n"
            "stopping STOPPING CancelledByUser 1 0\n"
            "running RUNNING Running 1 0\n"
            "failing STOPPING RankFailed 1 0\n"
            "cancelled CANCELLED CancelledByUser 1 1\n"
            "late TIMED_OUT TimeLimit 1 124\n"
            "recovered SUCCEEDED Completed 2 0\n"
            "failed FAILED RankFailed 2 5\n"
            "succeeded SUCCEEDED Completed 1 0\n"
            "trained SUCCEEDED Completed 1 0\n");
  EXPECT_EQ(Get("queued").queue_position(), 1u);
  EXPECT_EQ(Get("behind").queue_position(), 2u);
  EXPECT_EQ(Get("failed").ranks(1).exit().stderr_tail(), "Traceback: no such thing\n");
  EXPECT_EQ(Get("failing").ranks(1).exit().exit_code(), 9);
  EXPECT_EQ(core_->GetNode(NodeName("node-2"), now_)->cordon_reason(), "fan is loud");
  EXPECT_THAT(EventTypes("late"), ElementsAre(events::kSubmitted, events::kPlaced, events::kRunning,
                                              events::kStopping, events::kFinished));
}

// Schema 2 embedded the API's Job message of that time; this build's Job still has its fields.
TEST_F(StoreOfSchema2, KeepsEveryFieldOfAJob) {
  std::map<std::string, v1::Job> before;
  for (const store::Record& record : Scan()) {
    v1::JobRecordV2 old;
    if (record.key.rfind("job/", 0) != 0) continue;
    ASSERT_TRUE(old.ParseFromString(record.value));
    ASSERT_TRUE(before[old.job().job_id()].ParseFromString(old.job().SerializeAsString()));
  }
  ASSERT_EQ(before.size(), 13u);
  Start();
  for (auto& [id, expected] : before) {
    v1::Job found = *core_->GetJob(JobId(id), /*detailed=*/true, now_);
    // Fields that Views adds or hides.
    found.clear_queue_position();
    found.clear_ranks();
    found.clear_waits();
    found.clear_estimated_start_time();
    found.clear_estimate_basis();
    found.clear_goodput();
    found.clear_world_size();
    if (expected.state() != v1::SUCCEEDED) expected.clear_summary();
    EXPECT_EQ(found.SerializeAsString(), expected.SerializeAsString()) << found.DebugString();
  }
  EXPECT_EQ(Get("trained").summary().losses_size(), 4);
  EXPECT_EQ(Get("running").spec().env().at("MODE"), "slow");
}

TEST_F(StoreOfSchema2, StoppingJobsKeepTheirEnding) {
  Start();
  const Effects back = Return(
      SessionId(1), "node-1",
      {{"running", {Harness::MakeReport(0, v1::STARTED)}},
       {"failing", {Harness::MakeReport(0, v1::STARTED)}},
       {"stopping", {Harness::MakeReport(0, v1::STARTED), Harness::MakeReport(1, v1::STARTED)}}});
  EXPECT_EQ(CountSent(back, SessionId(1), Message::kStop), 2);
  const Message* const stop = FindSent(back, SessionId(1), Message::kStop);
  ASSERT_NE(stop, nullptr);
  EXPECT_EQ(stop->stop().grace_period().seconds(), 600);
  Exit(SessionId(1), "stopping", 0, KilledBy(9));
  Exit(SessionId(1), "stopping", 1, KilledBy(9));
  EXPECT_EQ(Get("stopping").state(), v1::CANCELLED);
  Exit(SessionId(1), "failing", 0, KilledBy(9));
  EXPECT_EQ(Get("failing").restarts(), 1u);
  EXPECT_EQ(Get("failing").first_failure().exit().exit_code(), 9);
  EXPECT_EQ(Get("running").state(), v1::RUNNING);
}

TEST_F(StoreOfSchema2, IsMigratedOnce) {
  const size_t before = Scan().size();
  Start();
  EXPECT_THAT(started_.logs,
              ElementsAre(absl::StrCat("migrating the store from schema 2 to ", kSchemaVersion,
                                       ": ", before, " records become ", before)));
  Start();
  EXPECT_THAT(started_.logs, IsEmpty());
}

TEST_F(StoreOfSchema2, RejectsDamagedJob) {
  std::vector<store::Record> records = Scan();
  for (store::Record& record : records) {
    if (record.key.rfind("job/", 0) == 0) record.value = "\xff\xff";
  }
  EXPECT_EQ(Migrate(records).status().code(), absl::StatusCode::kDataLoss);
}

class StoreOfSchema3 : public OldStore {
 protected:
  StoreOfSchema3() : OldStore(3, 1'795'423'938) {}
};

TEST_F(StoreOfSchema3, GetsIdentityThatItKeeps) {
  Start();
  EXPECT_EQ(core_->store().cluster_id, Harness::DefaultOptions().new_cluster_id);
  EXPECT_EQ(core_->store().commit_index, 1u);
  Start();
  EXPECT_EQ(core_->store().cluster_id, Harness::DefaultOptions().new_cluster_id);
  EXPECT_EQ(core_->store().commit_index, 2u);
}

// Its workers do not report a cluster.
TEST_F(StoreOfSchema3, RanksOfOldWorkersContinue) {
  Start();
  const Effects back = Return(SessionId(1), "node-1",
                              {{"running", {Harness::MakeReport(0, v1::STARTED)}},
                               {"second", {Harness::MakeReport(0, v1::STARTED)}}});
  EXPECT_THAT(core_->GetNode(NodeName("node-1"), now_)->conflict(), IsEmpty());
  EXPECT_EQ(CountSent(back, SessionId(1), Message::kStop), 0);
  Exit(SessionId(1), "running", 0, ExitWith(0));
  EXPECT_EQ(Get("running").state(), v1::SUCCEEDED);
  EXPECT_EQ(Get("queued").state(), v1::STARTING);
}

class StoreOfSchema4 : public OldStore {
 protected:
  StoreOfSchema4() : OldStore(4, 1'795'467'796) {}
};

TEST_F(StoreOfSchema4, RecordsStartsFromNowOn) {
  Start();
  EXPECT_EQ(started_.logs.size(), 1u) << "the migration";
  const uint64_t index = core_->store().commit_index;
  ASSERT_EQ(core_->store().starts.size(), 1u);
  EXPECT_EQ(core_->store().starts[0].first_commit, index);
  Start();
  ASSERT_EQ(core_->store().starts.size(), 2u);
  EXPECT_EQ(core_->store().starts[1].first_commit, index + 1);
}

// Its workers have seen commits, but no start.
TEST_F(StoreOfSchema4, RanksOfItsWorkersContinue) {
  Start();
  const Effects back =
      Return(SessionId(1), "node-1", {{"running", {Harness::MakeReport(0, v1::STARTED)}}});
  EXPECT_THAT(core_->GetNode(NodeName("node-1"), now_)->conflict(), IsEmpty());
  EXPECT_EQ(CountSent(back, SessionId(1), Message::kStop), 0);
  Exit(SessionId(1), "running", 0, ExitWith(0));
  EXPECT_EQ(Get("running").state(), v1::SUCCEEDED);
  EXPECT_EQ(Get("queued").state(), v1::STARTING);
}

class StoreOfSchema5 : public OldStore {
 protected:
  StoreOfSchema5() : OldStore(5, 1'795'504'422) {}
};

// Use of the cluster is recorded from now on, that of the running job included.
TEST_F(StoreOfSchema5, RecordsUseFromNowOn) {
  Start();
  EXPECT_EQ(started_.logs.size(), 1u) << "the migration";
  const std::vector<v1::OwnerUse> uses = core_->ListOwnerUse(now_);
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_EQ(uses[0].owner(), "local");
  EXPECT_EQ(uses[0].running_slots(), 1u);
  EXPECT_EQ(uses[0].queued_jobs(), 1u);
  now_ = {now_.steady + absl::Seconds(10), now_.wall + absl::Seconds(10)};
  EXPECT_DOUBLE_EQ(core_->GetReport(1, now_).total().cpu_slot_seconds(), 10);
  EXPECT_EQ(core_->GetReport(1, now_).total().jobs_submitted(), 1u) << "the queued job";
  Return(SessionId(1), "node-1", {{"running", {Harness::MakeReport(0, v1::STARTED)}}});
  Exit(SessionId(1), "running", 0, ExitWith(0));
  EXPECT_EQ(core_->GetReport(1, now_).total().jobs_succeeded(), 1u);
  EXPECT_EQ(Get("queued").state(), v1::STARTING);
}

class StoreOfSchema6 : public OldStore {
 protected:
  StoreOfSchema6() : OldStore(6, 1'795'735'951) {}
};

// The running job has a history from its next generation on. The node keeps connecting with its
// token.
TEST_F(StoreOfSchema6, HasNeitherHistoriesNorIdentities) {
  Start();
  EXPECT_EQ(started_.logs.size(), 1u) << "the migration";
  EXPECT_TRUE(started_.revoked_certificates.empty());
  EXPECT_EQ(core_->ListJoinTokens(now_).tokens_size(), 0);
  for (const char* const name : {"succeeded", "running", "queued"}) {
    const JobId id(Get(name).job_id());
    EXPECT_EQ(core_->GetJobHistory(id, 0, now_)->nodes_size(), 0) << name;
  }
  Return(SessionId(1), "node-1", {{"running", {Harness::MakeReport(0, v1::STARTED)}}});
  Exit(SessionId(1), "running", 0, ExitWith(0));
  EXPECT_EQ(Get("running").state(), v1::SUCCEEDED);
  EXPECT_EQ(Get("queued").state(), v1::STARTING);
  const JobId queued(Get("queued").job_id());
  EXPECT_EQ(core_->GetJobHistory(queued, 0, now_)->nodes(0).node(), "node-1");
}

TEST(Migration, EmptyStoreGetsCurrentSchema) {
  const absl::StatusOr<Migration> migration = Migrate({});
  ASSERT_TRUE(migration.ok()) << migration.status();
  EXPECT_EQ(migration->from, 0u);
  ASSERT_EQ(migration->writes.size(), 1u);
  EXPECT_EQ(migration->writes[0].key, kSchemaKey);
}

}  // namespace
}  // namespace muster::core
