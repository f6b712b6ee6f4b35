#include "worker/c10d_store/protocol.h"

#include <random>
#include <string>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::c10d_store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

template <typename Number>
std::string N(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}
std::string T(const std::string& text) { return N<uint64_t>(text.size()) + text; }
std::string Type(uint8_t type) { return std::string(1, static_cast<char>(type)); }

const std::string kGreeting("\0\xce\xf7\x85\x3c", 5);

template <typename Expected>
Expected Next(RequestDecoder& decoder) {
  auto next = decoder.Next();
  auto* const request = std::get_if<Request>(&next);
  EXPECT_NE(request, nullptr);
  auto* const expected = request == nullptr ? nullptr : std::get_if<Expected>(request);
  EXPECT_NE(expected, nullptr);
  return expected == nullptr ? Expected{} : *expected;
}

bool IsIncomplete(RequestDecoder& decoder) {
  return std::holds_alternative<Incomplete>(decoder.Next());
}

std::string Refusal(const std::string& input) {
  RequestDecoder decoder;
  decoder.Append(input);
  const auto next = decoder.Next();
  const auto* const refused = std::get_if<Refused>(&next);
  return refused == nullptr ? "" : refused->reason;
}

TEST(RequestDecoderTest, DecodesProtocolWithGreeting) {
  RequestDecoder decoder;
  decoder.Append(kGreeting + Type(13) + N<uint32_t>(4711));
  EXPECT_EQ(Next<Ping>(decoder).nonce, 4711u);
  EXPECT_TRUE(IsIncomplete(decoder));

  decoder.Append(Type(1) + T("/a") + T("value") + Type(2) + T("/a") + T("value") + T("b"));
  const Set set = Next<Set>(decoder);
  EXPECT_EQ(set.key, "/a");
  EXPECT_EQ(set.value, "value");
  const CompareSet compare = Next<CompareSet>(decoder);
  EXPECT_EQ(compare.expected, "value");
  EXPECT_EQ(compare.desired, "b");

  decoder.Append(Type(3) + T("/a") + Type(4) + T("/n") + N<int64_t>(-3) + Type(5) + N<uint64_t>(2) +
                 T("/a") + T("/b") + Type(6) + N<uint64_t>(1) + T("/c"));
  EXPECT_EQ(Next<Get>(decoder).key, "/a");
  EXPECT_EQ(Next<Add>(decoder).amount, -3);
  EXPECT_THAT(Next<Check>(decoder).keys, ElementsAre("/a", "/b"));
  EXPECT_THAT(Next<Wait>(decoder).keys, ElementsAre("/c"));

  decoder.Append(Type(7) + Type(8) + T("/a") + Type(9) + T("/a") + T("x") + Type(10) +
                 N<uint64_t>(1) + T("/a") + Type(11) + N<uint64_t>(2) + T("/a") + T("1") + T("/b") +
                 T("2") + Type(12));
  Next<CountKeys>(decoder);
  EXPECT_EQ(Next<DeleteKey>(decoder).key, "/a");
  EXPECT_EQ(Next<c10d_store::Append>(decoder).value, "x");
  EXPECT_THAT(Next<MultiGet>(decoder).keys, ElementsAre("/a"));
  EXPECT_THAT(Next<MultiSet>(decoder).entries, ElementsAre(Pair("/a", "1"), Pair("/b", "2")));
  Next<CancelWait>(decoder);

  decoder.Append(Type(14) + T("/q") + T("v") + Type(15) + T("/q") + Type(16) + T("/q") + Type(17) +
                 Type(18) + T("/k") + N<int64_t>(4));
  EXPECT_EQ(Next<QueuePush>(decoder).value, "v");
  EXPECT_EQ(Next<QueuePop>(decoder).key, "/q");
  EXPECT_EQ(Next<QueueLength>(decoder).key, "/q");
  Next<ListKeys>(decoder);
  EXPECT_EQ(Next<Barrier>(decoder).world_size, 4);
  EXPECT_TRUE(IsIncomplete(decoder));
}

TEST(RequestDecoderTest, DecodesProtocolWithoutGreeting) {
  RequestDecoder decoder;
  decoder.Append(Type(3) + T("init/") + N<int64_t>(1) + Type(0) + T("/a") + T("b") + Type(1) +
                 T("/a") + T("b") + T("c") + Type(2) + T("/a") + Type(4) + N<uint64_t>(1) +
                 T("/a") + Type(5) + N<uint64_t>(1) + T("/a") + Type(6) + Type(8) + T("/a"));
  EXPECT_EQ(Next<Add>(decoder).key, "init/");
  EXPECT_EQ(Next<Set>(decoder).value, "b");
  EXPECT_EQ(Next<CompareSet>(decoder).desired, "c");
  EXPECT_EQ(Next<Get>(decoder).key, "/a");
  EXPECT_THAT(Next<Check>(decoder).keys, ElementsAre("/a"));
  EXPECT_THAT(Next<Wait>(decoder).keys, ElementsAre("/a"));
  Next<CountKeys>(decoder);
  EXPECT_EQ(Next<DeleteKey>(decoder).key, "/a");
  EXPECT_TRUE(IsIncomplete(decoder));
}

TEST(RequestDecoderTest, DecodesRequestsOfWorkers) {
  RequestDecoder decoder;
  decoder.Append(std::string(kIntroduction) + EncodeNameRank(4711, 3).substr(0, 4));
  auto next = decoder.Next();
  ASSERT_TRUE(std::holds_alternative<WorkerRequest>(next));
  EXPECT_TRUE(std::holds_alternative<Introduce>(std::get<WorkerRequest>(next)));
  EXPECT_TRUE(IsIncomplete(decoder));
  decoder.Append(EncodeNameRank(4711, 3).substr(4));
  next = decoder.Next();
  ASSERT_TRUE(std::holds_alternative<WorkerRequest>(next));
  const auto* const name = std::get_if<NameRank>(&std::get<WorkerRequest>(next));
  ASSERT_NE(name, nullptr);
  EXPECT_EQ(name->port, 4711);
  EXPECT_EQ(name->rank, 3u);
}

TEST(RequestDecoderTest, SetMayBeTheFirstRequestWithoutGreeting) {
  RequestDecoder decoder;
  decoder.Append(Type(0));
  EXPECT_TRUE(IsIncomplete(decoder));
  decoder.Append(T("/a") + T("b"));
  EXPECT_EQ(Next<Set>(decoder).key, "/a");
}

TEST(RequestDecoderTest, DecodesBytesThatArriveOneByOne) {
  const std::string input = kGreeting + Type(11) + N<uint64_t>(2) + T("/a") + T("1") + T("/b") +
                            T("22") + Type(13) + N<uint32_t>(1);
  RequestDecoder decoder;
  size_t requests = 0;
  for (const char byte : input) {
    decoder.Append({&byte, 1});
    for (auto next = decoder.Next(); !std::holds_alternative<Incomplete>(next);
         next = decoder.Next()) {
      ASSERT_TRUE(std::holds_alternative<Request>(next));
      ++requests;
    }
  }
  EXPECT_EQ(requests, 2u);
}

TEST(RequestDecoderTest, DecodesValueOverManyReads) {
  const std::string value(3 << 20, 'v');
  const std::string input = kGreeting + Type(1) + T("/large") + T(value) + Type(7);
  RequestDecoder decoder;
  for (size_t i = 0; i < input.size(); i += 64 << 10) {
    decoder.Append(std::string_view(input).substr(i, 64 << 10));
    if (i + (64 << 10) < input.size()) EXPECT_TRUE(IsIncomplete(decoder));
  }
  EXPECT_EQ(Next<Set>(decoder).value, value);
  Next<CountKeys>(decoder);
}

TEST(RequestDecoderTest, RefusesUnknownTypes) {
  EXPECT_EQ(Refusal(kGreeting + Type(200)),
            "it sent a request of type 200 after the greeting of PyTorch 2; supported are the "
            "protocols of PyTorch 1.13 and 2.15");
  EXPECT_THAT(Refusal(kGreeting + Type(19)), HasSubstr("type 19 after"));
  EXPECT_THAT(Refusal(kGreeting + kGreeting), HasSubstr("type 0 after"));
  EXPECT_THAT(Refusal(Type(7) + T("/watched")), HasSubstr("type 7 without the greeting"));
  EXPECT_THAT(Refusal(Type(9) + T("/a")), HasSubstr("type 9 without the greeting"));
  EXPECT_THAT(Refusal("GET / HTTP/1.1\r\n\r\n"), HasSubstr("type 71 without the greeting"));
}

TEST(RequestDecoderTest, RefusesWhatExceedsLimits) {
  EXPECT_EQ(Refusal(kGreeting + Type(3) + N<uint64_t>(kMaxKeyBytes + 1)),
            "a key has 8193 bytes; the limit is 8192");
  EXPECT_THAT(Refusal(kGreeting + Type(1) + T("/a") + N<uint64_t>(kMaxValueBytes + 1)),
              HasSubstr("a value has 67108865 bytes; the limit is 67108864"));
  EXPECT_THAT(Refusal(kGreeting + Type(1) + T("/a") + N<uint64_t>(UINT64_MAX)),
              HasSubstr("a value has 18446744073709551615 bytes"));
  EXPECT_EQ(Refusal(kGreeting + Type(6) + N<uint64_t>(kMaxKeys + 1)),
            "a request has 131073 keys; the limit is 131072");
}

TEST(RequestDecoderTest, SurvivesGarbage) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    RequestDecoder decoder;
    if (round % 2 == 0) decoder.Append(kGreeting);
    bool refused = false;
    for (int chunk = 0; chunk < 20 && !refused; ++chunk) {
      std::string bytes(random() % 64, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random() % (round % 3 == 0 ? 256 : 20));
      decoder.Append(bytes);
      while (true) {
        const auto next = decoder.Next();
        refused = std::holds_alternative<Refused>(next);
        if (refused || std::holds_alternative<Incomplete>(next)) break;
      }
    }
  }
}

}  // namespace
}  // namespace muster::c10d_store
