#include "coordinator/core/recovery/migration.h"

#include "absl/strings/match.h"
#include "common/status.h"
#include "coordinator/core/records.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Jobs of schema 2 have an exit code; it is 7 for those that are older.
absl::StatusOr<std::vector<store::Mutation>> AddExitCodes(absl::Span<const store::Record> records) {
  std::vector<store::Mutation> writes;
  for (const store::Record& record : records) {
    if (!absl::StartsWith(record.key, kJobPrefix)) continue;
    v1::JobRecord job;
    RETURN_IF_ERROR(ParseRecord(record, job));
    job.set_exit_code(7);
    writes.push_back(Put(job));
  }
  return writes;
}

constexpr MigrationStep kSteps[] = {AddExitCodes};

store::Record RecordOf(const store::Mutation& put) { return {put.key, *put.value}; }

std::vector<store::Record> StoreOfSchema1() {
  v1::JobRecord job;
  job.set_job_id("train-1a2b3");
  return {RecordOf(Put(job)), RecordOf(PutSchema(1))};
}

TEST(MigrationTest, AddsAFieldOnce) {
  const absl::StatusOr<Migration> migration = Migrate(StoreOfSchema1(), kSteps);
  ASSERT_TRUE(migration.ok()) << migration.status();
  EXPECT_EQ(migration->from, 1u);
  ASSERT_EQ(migration->writes.size(), 2u);
  EXPECT_EQ(migration->writes[1].key, kSchemaKey);
  ASSERT_EQ(migration->records.size(), 2u);
  v1::JobRecord job;
  ASSERT_TRUE(ParseRecord(migration->records[0], job).ok());
  EXPECT_EQ(job.job_id(), "train-1a2b3");
  EXPECT_EQ(job.exit_code(), 7);

  std::vector<store::Record> migrated = {migration->records[0], RecordOf(migration->writes[1])};
  const absl::StatusOr<Migration> again = Migrate(migrated, kSteps);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->from, 2u);
  EXPECT_THAT(again->writes, IsEmpty());
  EXPECT_THAT(std::string(Migrate(migrated, {}).status().message()),
              HasSubstr("schema 2, written by a newer Muster"));
}

TEST(MigrationTest, FailsWithTheErrorOfItsStep) {
  std::vector<store::Record> damaged = StoreOfSchema1();
  damaged[0].value = "\xff\xff";
  const absl::Status status = Migrate(damaged, kSteps).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("job/train-1a2b3"));
}

TEST(MigrationTest, EmptyStoreGetsCurrentSchema) {
  const absl::StatusOr<Migration> migration = Migrate({});
  ASSERT_TRUE(migration.ok()) << migration.status();
  EXPECT_EQ(migration->from, 0u);
  ASSERT_EQ(migration->writes.size(), 1u);
  EXPECT_EQ(migration->writes[0].key, kSchemaKey);
}

}  // namespace
}  // namespace muster::core
