#include "worker/train/testing.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/collectives/loopback.h"

namespace muster::train {

std::vector<std::unique_ptr<collectives::Communicator>> MakeLoopbackGroup(uint32_t size) {
  static std::atomic<int> groups{0};
  collectives::GroupOptions options;
  options.name = "WORLD";
  options.id = absl::StrCat("test-", groups++);
  options.size = size;
  for (uint32_t rank = 0; rank < size; ++rank) options.members.push_back(rank);

  std::vector<std::unique_ptr<collectives::Communicator>> communicators(size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&communicators, options, rank]() mutable {
      options.rank = rank;
      auto communicator = collectives::CreateLoopback(options);
      EXPECT_TRUE(communicator.ok()) << communicator.status();
      if (communicator.ok()) communicators[rank] = *std::move(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return communicators;
}

}  // namespace muster::train
