#include "coordinator/service/calls/page.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Nodes = google::protobuf::RepeatedPtrField<v1::Node>;

// Returns the names on a page of the nodes, and sets the token of the next page.
std::vector<std::string> Read(const std::set<std::string>& names, std::string& token,
                              uint32_t limit = 0, size_t bytes = 0) {
  absl::StatusOr<Page> page = Page::Open("nodes", token, limit);
  EXPECT_TRUE(page.ok()) << page.status();
  if (!page.ok()) return {};
  Nodes nodes;
  for (const std::string& name : names) {
    v1::Node& node = *nodes.Add();
    node.set_name(name);
    node.set_cordon_reason(std::string(bytes, 'x'));
  }
  page->Keep(nodes, [](const v1::Node& node) { return node.name(); });
  token = page->next_token();
  std::vector<std::string> read;
  for (const v1::Node& node : nodes) read.push_back(node.name());
  return read;
}

TEST(PageTest, HasNumberOfItems) {
  std::string token;
  EXPECT_THAT(Read({"a", "b", "c", "d", "e"}, token, 2), ElementsAre("a", "b"));
  EXPECT_THAT(Read({"a", "b", "c", "d", "e"}, token, 2), ElementsAre("c", "d"));
  EXPECT_THAT(Read({"a", "b", "c", "d", "e"}, token, 2), ElementsAre("e"));
  EXPECT_EQ(token, "");
  EXPECT_THAT(Read({"a", "b"}, token, 2), ElementsAre("a", "b"));
  EXPECT_EQ(token, "") << "there is no further item";
  EXPECT_THAT(Read({}, token, 2), IsEmpty());
}

TEST(PageTest, HasNumberOfBytesButAtLeastOneItem) {
  std::string token;
  EXPECT_THAT(Read({"a", "b", "c"}, token, 0, kPageBytes / 2 - 100), ElementsAre("a", "b"));
  EXPECT_THAT(Read({"a", "b", "c"}, token, 0, kPageBytes / 2 - 100), ElementsAre("c"));
  EXPECT_EQ(token, "");
  EXPECT_THAT(Read({"a", "b"}, token, 0, 2 * kPageBytes), ElementsAre("a"));
  EXPECT_THAT(Read({"a", "b"}, token, 0, 2 * kPageBytes), ElementsAre("b"));
  EXPECT_EQ(token, "");
}

TEST(PageTest, IsCompleteWhileItemsComeAndGo) {
  std::string token;
  EXPECT_THAT(Read({"b", "d", "f", "h"}, token, 2), ElementsAre("b", "d"));
  EXPECT_THAT(Read({"a", "c", "f", "g", "h"}, token, 2), ElementsAre("f", "g"));
  EXPECT_THAT(Read({"c"}, token, 2), IsEmpty());
  EXPECT_EQ(token, "");
}

TEST(PageTest, NumbersHaveAnOrder) {
  EXPECT_LT(Page::Ascending(9), Page::Ascending(10));
  EXPECT_LT(Page::Ascending(10), Page::Ascending(UINT64_MAX));
  EXPECT_LT(Page::Descending(10), Page::Descending(9));
  EXPECT_LT(Page::Descending(9), Page::Descending(0));
}

TEST(PageTest, RejectsTokensOfOtherLists) {
  absl::StatusOr<Page> jobs = Page::Open("jobs", "", 1);
  ASSERT_TRUE(jobs.ok());
  jobs->Add(v1::Node(), "a");
  jobs->Add(v1::Node(), "b");
  EXPECT_TRUE(Page::Open("jobs", jobs->next_token()).ok());
  for (const std::string& token :
       {jobs->next_token(), std::string("?"), std::string("b"), std::string("\n\xff"),
        std::string("bm9kZXMv"), std::string(1 << 20, 'a')}) {
    const absl::Status refused = Page::Open("nodes", token).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << token;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("is not a token of this list"));
    EXPECT_LT(refused.message().size(), 500u);
  }
}

}  // namespace
}  // namespace muster::service
