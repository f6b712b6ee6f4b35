#include "worker/c10d_store/store.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::c10d_store {
namespace {

using ::testing::HasSubstr;

template <typename Number>
std::string N(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}
std::string T(const std::string& text) { return N<uint64_t>(text.size()) + text; }

const std::string kWoken(1, '\0');
const std::string kCancelled(1, '\1');

class StoreTest : public ::testing::Test {
 protected:
  // The answers that the client has received since the last call, after the request.
  std::string Ask(ConnectionId client, Request request, int64_t now_ms = 0) {
    const auto refusal = store_.Handle(client, std::move(request), now_ms);
    EXPECT_FALSE(refusal.has_value()) << *refusal;
    return Received(client);
  }
  std::string Received(ConnectionId client) { return std::exchange(sent_[client], {}); }
  std::string Refusal(Request request) {
    return store_.Handle(0, std::move(request), 0).value_or("");
  }
  int64_t Since(ConnectionId client) {
    return std::visit([](const auto& wait) { return wait.since_ms; }, store_.waits().at(client));
  }

  std::map<ConnectionId, std::string> sent_;
  Store store_{[this](ConnectionId client, const std::string& bytes) { sent_[client] += bytes; }};
};

TEST_F(StoreTest, KeepsValues) {
  EXPECT_EQ(Ask(0, Get{"a"}), T(""));
  EXPECT_EQ(Ask(0, Set{"a", "1"}), "");
  EXPECT_EQ(Ask(1, Get{"a"}), T("1"));
  EXPECT_EQ(Ask(1, Append{"a", "2"}), "");
  EXPECT_EQ(Ask(1, MultiSet{{{"b", "x"}, {"c", "y"}}}), "");
  EXPECT_EQ(Ask(0, MultiGet{{"a", "b", "none"}}), T("12") + T("x") + T(""));
  EXPECT_EQ(Ask(0, Check{{"a", "b"}}), std::string(1, '\0'));
  EXPECT_EQ(Ask(0, Check{{"a", "none"}}), std::string(1, '\1'));
  EXPECT_EQ(Ask(0, CountKeys{}), N<int64_t>(3));
  EXPECT_EQ(Ask(0, ListKeys{}), N<int64_t>(3) + T("a") + T("b") + T("c"));
  EXPECT_EQ(Ask(0, DeleteKey{"a"}), N<int64_t>(1));
  EXPECT_EQ(Ask(0, DeleteKey{"a"}), N<int64_t>(0));
  EXPECT_EQ(Ask(0, Ping{7}), N<uint32_t>(7));
}

TEST_F(StoreTest, ComparesAndSets) {
  EXPECT_EQ(Ask(0, CompareSet{"a", "expected", "b"}), T("expected"));
  EXPECT_EQ(Ask(0, Check{{"a"}}), std::string(1, '\1'));
  EXPECT_EQ(Ask(0, CompareSet{"a", "", "first"}), T("first"));
  EXPECT_EQ(Ask(0, CompareSet{"a", "other", "b"}), T("first"));
  EXPECT_EQ(Ask(0, CompareSet{"a", "first", "second"}), T("second"));
}

TEST_F(StoreTest, AddsNumbers) {
  EXPECT_EQ(Ask(0, Add{"n", 3}), N<int64_t>(3));
  EXPECT_EQ(Ask(1, Add{"n", -5}), N<int64_t>(-2));
  EXPECT_EQ(Ask(1, Get{"n"}), T("-2"));
  Ask(0, Set{"text", "one"});
  EXPECT_THAT(Refusal(Add{"text", 1}), HasSubstr("does not hold a number"));
}

TEST_F(StoreTest, LimitsSize) {
  const std::string large(kMaxStoreBytes / 4, 'x');
  for (const char* key : {"a", "b", "c"}) Ask(0, Set{key, large});
  EXPECT_THAT(Refusal(Set{"d", large}), HasSubstr("limit of 512 MiB"));
  EXPECT_THAT(Refusal(QueuePush{"q", large}), HasSubstr("limit of 512 MiB"));
  Ask(0, Set{"c", "small"});
  Ask(0, Set{"d", large});
  Ask(0, DeleteKey{"a"});
  Ask(0, Set{"e", large});
}

TEST_F(StoreTest, WakesWaitersOnceAllKeysExist) {
  EXPECT_EQ(Ask(0, Wait{{"a", "b", "b"}}), "");
  EXPECT_EQ(Ask(1, Wait{{"b"}}), "");
  Ask(2, Set{"b", ""});
  EXPECT_EQ(Received(0), "");
  EXPECT_EQ(Received(1), kWoken);
  Ask(2, Add{"a", 1});
  EXPECT_EQ(Received(0), kWoken);
  EXPECT_TRUE(store_.waits().empty());
  EXPECT_EQ(Ask(0, Wait{{"a", "b"}}), kWoken);
}

TEST_F(StoreTest, CancelsWaits) {
  Ask(0, Wait{{"a"}}, 1000);
  EXPECT_EQ(Ask(0, CancelWait{}, 2000), kCancelled);
  Ask(1, Set{"a", ""});
  EXPECT_EQ(Received(0), "");
  // The answer may already be on its way when a client gives up.
  Ask(2, Wait{{"b"}});
  Ask(1, Set{"b", ""});
  EXPECT_EQ(Ask(2, CancelWait{}), kWoken + kCancelled);
}

TEST_F(StoreTest, RepeatedWaitContinues) {
  Ask(0, Wait{{"a"}}, 1000);
  Ask(0, CancelWait{}, 11'000);
  Ask(0, Add{"n", 0}, 11'000);
  Ask(0, Wait{{"a"}}, 11'001);
  EXPECT_EQ(Since(0), 1000);
  Ask(0, CancelWait{}, 12'000);
  Ask(0, Wait{{"b"}}, 12'001);
  EXPECT_EQ(Since(0), 12'001);
  Ask(0, CancelWait{}, 13'000);
  Ask(0, Wait{{"b"}}, 30'000);
  EXPECT_EQ(Since(0), 30'000);
}

TEST_F(StoreTest, ForgetsClosedClients) {
  Ask(0, Wait{{"a"}});
  store_.OnClose(0);
  EXPECT_TRUE(store_.waits().empty());
  Ask(1, Set{"a", ""});
  EXPECT_EQ(Received(0), "");
}

TEST_F(StoreTest, BarrierEndsOnceAllHaveArrived) {
  EXPECT_EQ(Ask(0, Barrier{"k", 3}), "");
  EXPECT_EQ(Ask(1, Barrier{"k", 3}), "");
  EXPECT_EQ(Ask(2, Barrier{"k", 3}), kWoken);
  EXPECT_EQ(Received(0), kWoken);
  EXPECT_EQ(Received(1), kWoken);
  EXPECT_TRUE(store_.waits().empty());
}

TEST_F(StoreTest, QueueWakesOneWaiterPerValue) {
  Ask(0, Wait{{"q"}});
  Ask(1, Wait{{"q"}});
  Ask(2, QueuePush{"q", "first"});
  EXPECT_EQ(Received(0), kWoken);
  EXPECT_EQ(Received(1), "");
  EXPECT_EQ(Ask(0, QueueLength{"q"}), N<int64_t>(1));
  EXPECT_EQ(Ask(0, QueuePop{"q"}), N<int64_t>(1) + T("first"));
  EXPECT_EQ(Ask(0, QueuePop{"q"}), N<int64_t>(0));
  Ask(2, QueuePush{"q", "second"});
  EXPECT_EQ(Received(1), kWoken);
  EXPECT_EQ(Ask(0, Wait{{"q"}}), kWoken);
}

TEST_F(StoreTest, RepeatedReadsOfACounterAreAPoll) {
  Ask(0, Add{"n", 1}, 1000);
  EXPECT_TRUE(store_.waits().empty());
  Ask(0, Add{"n", 0}, 1010);
  Ask(0, Add{"n", 0}, 1020);
  const auto* const poll = std::get_if<CounterPoll>(&store_.waits().at(0));
  ASSERT_NE(poll, nullptr);
  EXPECT_EQ(poll->since_ms, 1010);
  EXPECT_EQ(poll->latest_ms, 1020);
  Ask(0, Add{"m", 0}, 1030);
  EXPECT_EQ(Since(0), 1030);
  Ask(0, Get{"n"}, 1040);
  EXPECT_TRUE(store_.waits().empty());
}

TEST_F(StoreTest, RecordsWriters) {
  Ask(0, Add{"n", 1});
  Ask(1, Add{"n", 0});
  Ask(2, Add{"n", 1});
  EXPECT_EQ(store_.keys().Find("n")->writers, (std::set<ConnectionId>{0, 2}));
}

}  // namespace
}  // namespace muster::c10d_store
