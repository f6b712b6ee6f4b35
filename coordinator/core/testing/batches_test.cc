// Steps that are too large for one batch of the store. The harness checks the bounds of every
// batch, and that a coordinator that starts between two of them finds a consistent state.
#include "coordinator/core/batches.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/limits.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::ExitWith;
using testing::Harness;
using testing::MakeCommandSpec;
using ::testing::SizeIs;

// The mutations of a step that puts these keys, with its commit record at the end.
std::vector<store::Mutation> Step(uint64_t index, std::vector<store::Mutation> writes) {
  v1::CommitRecord commit;
  commit.set_index(index);
  writes.push_back(Put(commit));
  return writes;
}

std::vector<store::Mutation> Puts(size_t count, size_t bytes) {
  std::vector<store::Mutation> writes;
  for (size_t i = 0; i < count; ++i) {
    writes.push_back({absl::StrCat("key/", i), std::string(bytes, 'x')});
  }
  return writes;
}

TEST(SplitIntoBatches, SmallStepsShareABatch) {
  std::vector<store::Mutation> writes = Step(1, {{"a", "1"}, {"b", "1"}});
  const std::vector<store::Mutation> second = Step(2, {{"a", std::nullopt}});
  writes.insert(writes.end(), second.begin(), second.end());
  const auto batches = SplitIntoBatches(writes);
  ASSERT_THAT(batches, SizeIs(1));
  ASSERT_THAT(batches[0], SizeIs(3)) << "one write per key: the last one";
  EXPECT_EQ(batches[0][0].key, "a");
  EXPECT_FALSE(batches[0][0].value.has_value());
  EXPECT_EQ(batches[0][2].value, Put([] {
                                   v1::CommitRecord commit;
                                   commit.set_index(2);
                                   return commit;
                                 }())
                                     .value);
}

TEST(SplitIntoBatches, StepsAreNotDividedWhileTheyFit) {
  std::vector<store::Mutation> writes;
  for (uint64_t index = 1; index <= 3; ++index) {
    const std::vector<store::Mutation> step = Step(index, Puts(100, 10));
    writes.insert(writes.end(), step.begin(), step.end());
  }
  const auto batches = SplitIntoBatches(writes);
  ASSERT_THAT(batches, SizeIs(3));
  for (const auto& batch : batches) EXPECT_THAT(batch, SizeIs(101));
}

TEST(SplitIntoBatches, NothingIsNoBatch) { EXPECT_THAT(SplitIntoBatches({}), SizeIs(0)); }

// A coordinator that is killed while it carries out the staged writes of a start, again and again.
TEST(Unstage, RepeatsUntilItsWritesAreCommitted) {
  std::map<std::string, std::string> records;
  const auto apply = [&records](const std::vector<store::Mutation>& batch) {
    for (const store::Mutation& write : batch) {
      records.erase(write.key);
      if (write.value.has_value()) records[write.key] = *write.value;
    }
  };
  const auto unstage = [&records] {
    std::vector<store::Record> stored;
    for (const auto& [key, value] : records) stored.push_back({key, value});
    return *Unstage(stored);
  };
  apply({{"key/0", "old"}, {"other", "old"}});
  const auto batches = SplitIntoBatches(Step(1, Puts(300, 4096)));
  size_t marked = 0;  // batches up to the one that makes the step count
  while (unstage().records.size() < 300) apply(batches[marked++]);
  EXPECT_GT(marked, 2u);
  for (uint64_t index = 2; index < 5; ++index) {
    const Unstaged found = unstage();
    EXPECT_THAT(found.records, SizeIs(302));
    const auto again = SplitIntoBatches(Step(index, found.writes));
    for (size_t i = 0; i < marked - 1 + index % 2; ++i) apply(again[i]);  // then it is killed
    EXPECT_THAT(unstage().records, SizeIs(302));
  }
  for (const auto& batch : SplitIntoBatches(Step(9, unstage().writes))) apply(batch);
  EXPECT_THAT(records, SizeIs(302));
  EXPECT_EQ(records.at("other"), "old");
  EXPECT_THAT(records.at("key/0"), SizeIs(4096));
}

TEST(Unstage, RefusesAStepThatLacksAPart) {
  v1::CommitRecord commit;
  commit.set_index(7);
  commit.set_staged(2);
  EXPECT_EQ(
      Unstage({{StagedKey(7, 0), ""}, {kCommitKey, commit.SerializeAsString()}}).status().message(),
      "record staged/00000000000000000007/000001 is missing");
}

// The bytes of the writes that the steps of `run` commit.
template <typename Run>
size_t BytesWritten(const Run& run) {
  size_t bytes = 0;
  const absl::Time begin = absl::Now();
  run([&bytes](const Effects& effects) {
    for (const auto& batch : SplitIntoBatches(effects.writes)) {
      for (const store::Mutation& write : batch) {
        bytes += write.key.size() + (write.value.has_value() ? write.value->size() : 0);
      }
    }
  });
  std::cout << bytes << " bytes written, " << absl::Now() - begin << std::endl;
  return bytes;
}

// The spec is written once, whatever happens to the job.
TEST(Batches, LargeSpecIsWrittenOnce) {
  Harness cluster;
  cluster.Join("a");
  v1::JobSpec spec = MakeCommandSpec(1);
  (*spec.mutable_env())["DATA"] = std::string(900'000, 'x');
  const size_t bytes = BytesWritten([&](const auto& count) {
    count(cluster.Step(SubmitJob{RequestId(1000), JobId("large"), spec, ""}));
    cluster.ReportPhaseOfAll("large", v1::STARTED);
    for (int i = 0; i < 4; ++i) {
      count(cluster.Step(RequeueJob{RequestId(1001 + i), "large"}));
      count(cluster.ReportExit("a", "large", 0, ExitWith(1)));
      count(cluster.ReportPhase("a", "large", 0, v1::STARTED));
    }
  });
  EXPECT_EQ(cluster.State("large"), v1::RUNNING);
  EXPECT_LT(bytes, 1'000'000u);
  cluster.Restart();
  EXPECT_EQ(cluster.Get("large").spec().SerializeAsString(), spec.SerializeAsString());
}

TEST(Batches, LargestSpecIsStoredAndDeleted) {
  Options options = Harness::DefaultOptions();
  options.keep_jobs = 0;
  Harness cluster(options);
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.add_command(std::string(limits::kSpecBytes - spec.ByteSizeLong() - 8, 'x'));
  const std::string job = cluster.Submit(spec);
  EXPECT_EQ(cluster.Get(job).spec().command(1).size(), spec.command(1).size());
  cluster.Restart();
  EXPECT_EQ(cluster.Get(job).spec().command(1).size(), spec.command(1).size());
  ASSERT_TRUE(cluster.Cancel(job).ok());
  cluster.Run(absl::Minutes(2));
  for (const auto& [key, value] : cluster.records()) EXPECT_FALSE(absl::StrContains(key, job));
}

size_t CountRecords(const Harness& cluster, const std::string& prefix) {
  size_t count = 0;
  for (const auto& [key, value] : cluster.records()) count += absl::StartsWith(key, prefix);
  return count;
}

TEST(Batches, TasksOfAnArrayShareASpec) {
  Options options = Harness::DefaultOptions();
  options.keep_jobs = 0;
  Harness cluster(options);
  const std::string array = cluster.SubmitArray(MakeCommandSpec(1), 200);
  EXPECT_EQ(CountRecords(cluster, kSpecPrefix), 1u);
  cluster.Restart();
  EXPECT_EQ(cluster.Get(array + "-199").spec().command(0), "true");
  ASSERT_TRUE(cluster.CancelArray(array).ok());
  // A coordinator is killed during the deletion.
  for (int i = 0; i < 20 && CountRecords(cluster, kJobPrefix) > 0; ++i) {
    cluster.Run(absl::Seconds(10));
    EXPECT_EQ(CountRecords(cluster, kSpecPrefix), CountRecords(cluster, kJobPrefix) > 0 ? 1u : 0u);
    cluster.Restart();
  }
  cluster.Run(absl::Minutes(1));
  EXPECT_EQ(CountRecords(cluster, kSpecPrefix), 0u);
  EXPECT_EQ(CountRecords(cluster, kJobPrefix), 0u);
}

TEST(Batches, LargestArrayIsStoredAsAWhole) {
  Harness cluster;
  SubmitJob submit{RequestId(1000), JobId("sweep"), MakeCommandSpec(1), ""};
  submit.spec.mutable_array()->set_count(limits::kTasksPerArray);
  submit.tasks.assign(limits::kTasksPerArray,
                      {std::make_shared<const v1::JobSpec>(MakeCommandSpec(1))});
  size_t batches = 0;
  BytesWritten([&](const auto& count) {
    const Effects effects = cluster.Step(submit);
    batches = SplitIntoBatches(effects.writes).size();
    count(effects);
  });
  EXPECT_GT(batches, 2 * limits::kTasksPerArray / kBatchOperations);
  cluster.Restart();
  EXPECT_EQ(cluster.GetArray("sweep").tasks().at("QUEUED"), limits::kTasksPerArray);
}

}  // namespace
}  // namespace muster::core
