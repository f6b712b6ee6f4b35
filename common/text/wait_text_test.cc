#include "common/text/wait_text.h"

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

v1::Wait MakeWait(uint32_t ranks) {
  v1::Wait wait;
  wait.set_what("barrier world/12");
  *wait.mutable_since() = ToProto(absl::Milliseconds(7040));
  for (uint32_t i = 0; i < ranks; ++i) {
    v1::WaitedFor& who = *wait.add_missing();
    who.set_rank(17 + i);
    who.set_node("gpu-03");
    who.set_reason("phase STARTED, last seen 2.1 s ago");
  }
  return wait;
}

TEST(WaitText, NamesRankNodeAndReason) {
  EXPECT_EQ(WaitText(MakeWait(1)),
            "barrier world/12 has waited 7.0 s for rank 17 (node gpu-03, phase STARTED, last seen "
            "2.1 s ago)");
  EXPECT_EQ(WaitText(MakeWait(1), /*timed_out=*/true),
            "barrier world/12 timed out after 7.0 s, waiting for rank 17 (node gpu-03, phase "
            "STARTED, last seen 2.1 s ago)");
}

TEST(WaitText, CountsHiddenEntries) {
  v1::Wait wait = MakeWait(3);
  for (v1::WaitedFor& who : *wait.mutable_missing()) {
    who.clear_node();
    who.clear_reason();
  }
  EXPECT_EQ(MissingText(wait), "rank 17, rank 18, rank 19");
  EXPECT_EQ(MissingText(wait, 2), "rank 17, rank 18 and 1 more");
  wait.add_missing()->set_reason("and 40 more");
  EXPECT_EQ(MissingText(wait), "rank 17, rank 18, rank 19 and 40 more");
  EXPECT_EQ(MissingText(wait, 2), "rank 17, rank 18 and 41 more");
}

TEST(WaitText, ShowsEntriesWithoutRank) {
  v1::Wait wait;
  wait.set_what("resources");
  EXPECT_EQ(MissingText(wait), "nothing");
  wait.add_missing()->set_reason("needs 2 nodes; 1 has that");
  wait.add_missing()->set_node("a");
  wait.mutable_missing(1)->set_reason("0 of 1 slots free");
  EXPECT_EQ(MissingText(wait), "needs 2 nodes; 1 has that, node a (0 of 1 slots free)");
}

}  // namespace
}  // namespace muster
