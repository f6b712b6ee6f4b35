#include "trainer/tensorboard/tensorboard.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

std::vector<std::string> Files(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the complete events of a file. Checksums are tested in record_file_test.
std::vector<tensorboard::Event> Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<tensorboard::Event> events;
  for (size_t at = 0; at + 12 <= bytes.size();) {
    uint64_t size = 0;
    std::memcpy(&size, &bytes[at], sizeof(size));
    events.emplace_back();
    EXPECT_TRUE(events.back().ParseFromString(bytes.substr(at + 12, size)));
    at += 12 + size + 4;
  }
  return events;
}

TEST(TensorBoardWriterTest, WritesEventsInOrder) {
  const data::TemporaryDirectory directory;
  const std::string path = directory.path() + "/a/b";
  double now = 1700000000.25;
  auto writer = TensorBoardWriter::Create(path, 1, [&now] { return At(now); });
  ASSERT_TRUE(writer.ok()) << writer.status();
  now += 1;
  ASSERT_TRUE((*writer)->AddScalars(10, {{"train/loss", 0.5}, {"train/accuracy", 0.75}}).ok());
  // The writer is still open.
  ASSERT_THAT(Files(path), SizeIs(1));
  EXPECT_TRUE(absl::StartsWith(Files(path)[0], path + "/events.out.tfevents.1700000000."));
  const std::vector<tensorboard::Event> events = Read((*writer)->path());
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_NEAR(events[0].wall_time(), 1700000000.25, 1e-3);
  EXPECT_EQ(events[1].session_log().status(), tensorboard::SessionLog::START);
  EXPECT_EQ(events[1].step(), 1);
  EXPECT_EQ(events[2].step(), 10);
  EXPECT_NEAR(events[2].wall_time(), 1700000001.25, 1e-3);
  ASSERT_EQ(events[2].summary().value_size(), 2);
  EXPECT_EQ(events[2].summary().value(1).tag(), "train/accuracy");
  EXPECT_EQ(events[2].summary().value(1).simple_value(), 0.75f);
  EXPECT_TRUE((*writer)->Flush().ok());
}

TEST(TensorBoardWriterTest, WritesZeroValues) {
  const data::TemporaryDirectory directory;
  const auto writer = TensorBoardWriter::Create(directory.path(), 1, [] { return At(1); });
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->AddScalars(1, {{"train/skipped_steps", 0}}).ok());
  const std::vector<tensorboard::Event> events = Read((*writer)->path());
  ASSERT_EQ(events.size(), 3);
  EXPECT_TRUE(events[2].summary().value(0).has_simple_value());
}

TEST(TensorBoardWriterTest, LaterFilesSortLaterByName) {
  const data::TemporaryDirectory directory;
  std::vector<std::string> paths;
  for (const double now : {100.0, 100.5, 90.0, 103.0}) {
    auto writer = TensorBoardWriter::Create(directory.path(), 1, [now] { return At(now); });
    ASSERT_TRUE(writer.ok()) << writer.status();
    paths.push_back((*writer)->path());
  }
  EXPECT_EQ(paths, Files(directory.path()));
  EXPECT_TRUE(absl::StrContains(paths[2], "tfevents.0000000102."));
  EXPECT_TRUE(absl::StrContains(paths[3], "tfevents.0000000103."));
}

TEST(TensorBoardWriterTest, NamesPathInErrors) {
  const data::TemporaryDirectory directory;
  data::WriteFile(directory.path() + "/file", "x");
  const absl::Status status =
      TensorBoardWriter::Create(directory.path() + "/file/inside", 1).status();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), "/file/inside")) << status;
  EXPECT_EQ(ExitCodeOf(status), kExitCannotCreate);
}

}  // namespace
}  // namespace muster::train
