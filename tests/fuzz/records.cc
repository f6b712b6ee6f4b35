// Records of the coordinator's store with other contents: the core must refuse them or work with
// them.
#include "coordinator/core/records.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "coordinator/core/core.h"
#include "coordinator/core/testing/harness.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/store.pb.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/edit_message.h"

namespace muster {
namespace {

using namespace core;
using testing::Harness;
using Contents = std::map<std::string, std::string>;

constexpr int kMaxEdits = 24;
constexpr int kTicks = 4;
const Time kNow = {SteadyTime(absl::Hours(2)), absl::FromUnixSeconds(1'700'010'000)};

// The records of a cluster with two nodes and jobs in several states.
Contents MakeRecords() {
  Harness harness;
  harness.Join("node1", 2);
  harness.Join("node2", 2);
  const std::string failed = harness.Submit(testing::MakeCommandSpec(1));
  harness.BringUp(failed);
  harness.ExitAll(failed, testing::ExitWith(3));
  harness.BringUp(harness.Submit(testing::MakeSpec(2)));
  harness.SubmitArray(testing::MakeCommandSpec(1), 3, 1);
  const Actor actor = {"alice"};
  harness.Step(SetSecret{RequestId(1001), "name", "value", actor});
  harness.Step(CreateJoinToken{RequestId(1002), "token", "digest", absl::InfiniteFuture(), 2,
                               NodeName(), actor});
  harness.Step(EnrollNode{RequestId(1003), "digest", NodeName("node3"), "machine", "serial",
                          absl::InfiniteFuture()});
  return harness.records();
}

std::unique_ptr<google::protobuf::Message> NewRecord(const std::string& key) {
  const std::pair<const char*, const google::protobuf::Message*> kinds[] = {
      {kSchemaKey, &v1::SchemaRecord::default_instance()},
      {kClusterKey, &v1::ClusterRecord::default_instance()},
      {kCommitKey, &v1::CommitRecord::default_instance()},
      {kFenceKey, &v1::FenceRecord::default_instance()},
      {kStartPrefix, &v1::StartRecord::default_instance()},
      {kJobPrefix, &v1::JobRecord::default_instance()},
      {kSpecPrefix, &v1::SpecRecord::default_instance()},
      {kSummaryPrefix, &v1::SummaryRecord::default_instance()},
      {kStagedPrefix, &v1::StagedRecord::default_instance()},
      {kGenerationPrefix, &v1::GenerationRecord::default_instance()},
      {kPlacementPrefix, &v1::PlacementRecord::default_instance()},
      {kEventPrefix, &v1::EventRecord::default_instance()},
      {kNodePrefix, &v1::NodeRecord::default_instance()},
      {kHistoryPrefix, &v1::HistoryRecord::default_instance()},
      {kLogPrefix, &v1::LogTailRecord::default_instance()},
      {kOwnerPrefix, &v1::OwnerRecord::default_instance()},
      {kSecretPrefix, &v1::SecretRecord::default_instance()},
      {kIdentityPrefix, &v1::IdentityRecord::default_instance()},
      {kJoinTokenPrefix, &v1::JoinTokenRecord::default_instance()},
  };
  for (const auto& [prefix, record] : kinds) {
    if (absl::StartsWith(key, prefix))
      return std::unique_ptr<google::protobuf::Message>(record->New());
  }
  return nullptr;
}

void EditRecords(FuzzedDataProvider& input, Contents& records) {
  static const std::vector<std::string> words = {"job1",  "job2",  "job3",  "node1",
                                                 "node2", "node3", "alice", "world"};
  auto record =
      std::next(records.begin(), input.ConsumeIntegralInRange<ptrdiff_t>(0, records.size() - 1));
  switch (input.ConsumeIntegralInRange(0, 7)) {
    case 0:
      record->second = input.ConsumeRandomLengthString(64);
      return;
    case 1:
      if (records.size() > 1) records.erase(record);
      return;
    case 2:
      records[input.ConsumeRandomLengthString(32)] = record->second;
      return;
    default:
      const std::unique_ptr<google::protobuf::Message> message = NewRecord(record->first);
      if (message == nullptr || !message->ParseFromString(record->second)) return;
      fuzz::EditMessage(input, words, *message);
      record->second = message->SerializeAsString();
  }
}

absl::StatusOr<Effects> Load(const Contents& contents, Core& core) {
  std::vector<store::Record> records;
  for (const auto& [key, value] : contents) records.push_back({key, value});
  return core.Load(records, kNow);
}

void Apply(const Effects& effects, Contents& records) {
  for (const store::Mutation& write : effects.writes) {
    if (write.value.has_value()) {
      records[write.key] = *write.value;
    } else {
      records.erase(write.key);
    }
  }
}

void AskAll(Core& core, Time now) {
  v1::ListJobsRequest all;
  all.set_include_finished(true);
  for (const v1::Job& job : core.ListJobs(all, now)) {
    const JobId id(job.job_id());
    core.GetJob(id, /*detailed=*/true, now).IgnoreError();
    core.ListEvents(id, 0).IgnoreError();
    core.GetJobHistory(id, 10, now).IgnoreError();
    core.FindLogTail(id, Generation(0), Rank(0)).IgnoreError();
    if (!job.array_id().empty()) core.GetArray(job.array_id()).IgnoreError();
  }
  core.ListNodes(now);
  core.ListWaits();
  core.GetQueue(0, now);
  core.GetReport(3, now);
  core.ListOwnerUse(now);
  core.ListSecrets({"alice", true});
  core.ListJoinTokens(now);
  core.ListFiles();
  core.TakeStats();
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  GTEST_FLAG_SET(break_on_failure, true);
  static const Contents base = MakeRecords();
  Contents records = base;
  FuzzedDataProvider input(data, size);
  for (int i = 0; i < kMaxEdits && input.remaining_bytes() > 0; ++i) EditRecords(input, records);
  Core core(Harness::DefaultOptions());
  const absl::StatusOr<Effects> loaded = Load(records, core);
  if (!loaded.ok()) return 0;
  Apply(*loaded, records);
  Time now = kNow;
  Apply(core.Step(Listening{"machine", "address"}, now), records);
  AskAll(core, now);
  for (int i = 0; i < kTicks && core.NextDeadline() < SteadyTime::Infinite(); ++i) {
    const absl::Duration by = std::max(absl::ZeroDuration(), core.NextDeadline() - now.steady);
    now = {now.steady + by, now.wall + by};
    Apply(core.Step(Tick{}, now), records);
  }
  AskAll(core, now);
  Core again(Harness::DefaultOptions());
  fuzz::CheckOk(Load(records, again).status(), "the core can load what it has written");
  return 0;
}
