#include "trainer/loop/shared_folder.h"

#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"
#include "trainer/loop/testing.h"

namespace muster::train {
namespace {

using ::testing::Each;

// Results of three ranks.
std::vector<bool> OnThreeRanks(const std::function<std::string(uint32_t rank)>& path) {
  const auto communicators = MakeLoopbackGroup(3);
  std::vector<bool> results(3);
  std::vector<std::thread> threads;
  absl::Mutex mutex;  // std::vector<bool> packs its elements
  for (uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto shared = CreateSharedFolder(
          *communicators[rank], path(rank), absl::ZeroDuration(),
          [&](const std::function<void()>& on_progress) -> absl::Status {
            EXPECT_EQ(rank, 0);
            on_progress();
            std::error_code error;
            std::filesystem::create_directory(path(rank), error);
            return error ? absl::UnavailableError("cannot create the folder") : absl::OkStatus();
          });
      ASSERT_TRUE(shared.ok()) << shared.status();
      absl::MutexLock lock(&mutex);
      results[rank] = *shared;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(SharedFolderTest, IsSharedIfAllRanksSeeIt) {
  const data::TemporaryDirectory directory, other;
  const std::string folder = directory.path() + "/folder";
  EXPECT_THAT(OnThreeRanks([&](uint32_t) { return folder; }), Each(true));
  EXPECT_TRUE(std::filesystem::is_directory(folder));
  // The last rank is on a node with a directory of its own.
  const std::string elsewhere = other.path() + "/folder";
  EXPECT_THAT(OnThreeRanks([&](uint32_t rank) { return rank == 2 ? elsewhere : folder; }),
              Each(false));
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
}

TEST(SharedFolderTest, IsNotSharedIfItCannotBeCreated) {
  const data::TemporaryDirectory directory;
  EXPECT_THAT(OnThreeRanks([&](uint32_t) { return directory.path() + "/missing/folder"; }),
              Each(false));
}

}  // namespace
}  // namespace muster::train
