#include "coordinator/service/auth/audit_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "prometheus/registry.h"

namespace muster::service {
namespace {

using ::testing::SizeIs;

class AuditLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/audit.", getpid());
    std::filesystem::create_directories(directory_);
    options_.path = directory_ + "/audit.log";
    options_.clock = [this] { return now_; };
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static AuditEntry Entry(const std::string& job) {
    return {.user = "alice",
            .role = "submit",
            .peer = "10.0.0.7",
            .method = "CancelJob",
            .object_kind = "job",
            .object = job,
            .status = absl::OkStatus()};
  }
  static AuditEntry Unauthenticated() {
    return {.peer = "10.0.0.7", .method = "CancelJob", .status = absl::UnauthenticatedError("no")};
  }
  std::vector<nlohmann::json> Lines(const std::string& suffix = "") const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(options_.path + suffix);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  double Failures() const { return registry_.Collect().at(0).metric.at(0).counter.value; }

  std::string directory_;
  AuditLog::Options options_;
  prometheus::Registry registry_;
  Time now_ = {SteadyTime(absl::Hours(1)), absl::FromUnixMillis(1'700'000'000'250)};
};

TEST_F(AuditLogTest, WritesALinePerCallToAPrivateFile) {
  AuditLog log(options_, registry_);
  AuditEntry entry = Entry("train-x7k2p");
  entry.idempotency_key = "key-1";
  entry.status = absl::NotFoundError("no job \"train-x7k2p\"\n\xff");
  log.Append(entry);
  std::ifstream file(options_.path);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line,
            "{\"time\":\"2023-11-14T22:13:20.25+00:00\",\"user\":\"alice\",\"role\":\"submit\","
            "\"peer\":\"10.0.0.7\",\"method\":\"CancelJob\",\"job\":\"train-x7k2p\","
            "\"idempotency_key\":\"key-1\",\"code\":\"NOT_FOUND\","
            "\"message\":\"no job \\\"train-x7k2p\\\"\\n\xEF\xBF\xBD\"}");
  struct stat info;
  ASSERT_EQ(stat(options_.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(AuditLogTest, AppendsAfterARestart) {
  AuditLog(options_, registry_).Append(Entry("a"));
  prometheus::Registry registry;
  AuditLog(options_, registry).Append(Entry("b"));
  EXPECT_THAT(Lines(), SizeIs(2));
}

TEST_F(AuditLogTest, KeepsABoundedNumberOfFilesOfBoundedSize) {
  options_.file_bytes = 1000;
  options_.files = 3;
  AuditLog log(options_, registry_);
  for (int i = 0; i < 100; ++i) log.Append(Entry(absl::StrCat(i)));
  EXPECT_EQ(Lines().back()["job"], "99");
  EXPECT_EQ(std::stoi(Lines(".1").back()["job"].get<std::string>()) + 1,
            std::stoi(Lines().front()["job"].get<std::string>()));
  size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory_)) {
    EXPECT_LE(file.file_size(), 1000u) << file.path();
    ++files;
  }
  EXPECT_EQ(files, 3u);
}

TEST_F(AuditLogTest, CountsEntriesThatItCannotWriteAndRecovers) {
  std::filesystem::remove_all(directory_);
  AuditLog log(options_, registry_);
  log.Append(Entry("a"));
  log.Append(Entry("b"));
  EXPECT_EQ(Failures(), 2);
  std::filesystem::create_directories(directory_);
  log.Append(Entry("c"));
  EXPECT_EQ(Failures(), 2);
  EXPECT_EQ(Lines().at(0)["job"], "c");
}

TEST_F(AuditLogTest, LeavesTheLastSpaceOfTheDisk) {
  options_.reserved_bytes = uint64_t{1} << 60;
  AuditLog log(options_, registry_);
  log.Append(Entry("one"));
  EXPECT_EQ(Failures(), 1);
  EXPECT_THAT(Lines(), SizeIs(0));
}

TEST_F(AuditLogTest, LimitsUnauthenticatedCallsAndCountsTheOthers) {
  AuditLog log(options_, registry_);
  for (int i = 0; i < 100; ++i) log.Append(Unauthenticated());
  EXPECT_THAT(Lines(), SizeIs(60));
  log.Append(Entry("a"));
  EXPECT_EQ(Lines().back()["job"], "a") << "authenticated calls are not limited";
  now_.steady = now_.steady + absl::Seconds(2);
  log.Append(Unauthenticated());
  EXPECT_EQ(Lines().back()["left_out"], 40);
  log.Append(Unauthenticated());
  EXPECT_FALSE(Lines().back().contains("left_out"));
  EXPECT_THAT(Lines(), SizeIs(63));
}

}  // namespace
}  // namespace muster::service
