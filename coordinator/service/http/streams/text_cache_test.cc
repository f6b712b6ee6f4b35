#include "coordinator/service/http/streams/text_cache.h"

#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

class TextCacheTest : public ::testing::Test {
 protected:
  absl::StatusOr<TextCache::Text> Get(const std::string& key) {
    return cache_.Get(key, absl::Seconds(1), [this]() -> absl::StatusOr<std::string> {
      ++renderings_;
      if (!status_.ok()) return status_;
      return text_;
    });
  }

  Time now_ = {SteadyTime(absl::Hours(1)), absl::UnixEpoch()};
  TextCache cache_{[this] { return now_; }};
  int renderings_ = 0;
  std::string text_ = "one";
  absl::Status status_;
};

TEST_F(TextCacheTest, RendersOnceForAllWithinTheAge) {
  const TextCache::Text first = *Get("a");
  text_ = "two";
  EXPECT_EQ(*Get("a"), first);
  EXPECT_EQ(renderings_, 1);
  now_.steady = now_.steady + absl::Seconds(1);
  EXPECT_EQ(**Get("a"), "two");
  EXPECT_EQ(**Get("b"), "two");
  EXPECT_EQ(renderings_, 3);
}

TEST_F(TextCacheTest, EqualTextIsTheSameObject) {
  const TextCache::Text first = *Get("a");
  now_.steady = now_.steady + absl::Seconds(1);
  EXPECT_EQ(*Get("a"), first);
  EXPECT_EQ(renderings_, 2);
}

TEST_F(TextCacheTest, ErrorIsSharedAndThenTriedAgain) {
  status_ = absl::NotFoundError("no job");
  EXPECT_EQ(Get("a").status(), status_);
  EXPECT_EQ(Get("a").status(), status_);
  EXPECT_EQ(renderings_, 1);
  now_.steady = now_.steady + absl::Seconds(1);
  status_ = absl::OkStatus();
  EXPECT_EQ(**Get("a"), "one");
}

TEST_F(TextCacheTest, UnusedTextsAreDropped) {
  std::weak_ptr<const std::string> text = *Get("a");
  now_.steady = now_.steady + absl::Minutes(1);
  EXPECT_TRUE(Get("b").ok());
  EXPECT_TRUE(text.expired());
}

TEST_F(TextCacheTest, ConcurrentCallersWaitForOneRendering) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([this] { EXPECT_TRUE(Get("a").ok()); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(renderings_, 1);
}

}  // namespace
}  // namespace muster::service
