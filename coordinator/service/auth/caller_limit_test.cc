#include "coordinator/service/auth/caller_limit.h"

#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace muster::service {
namespace {

TEST(CallerLimitTest, CountsEachCallersOpenStreams) {
  CallerLimit limit("log streams", 2);
  std::vector<AdmittedCaller> alice = {*limit.Admit({"alice"}), *limit.Admit({"alice"})};
  const absl::Status refused = limit.Admit({"alice"}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "alice has 2 open log streams, the limit for one caller; close some, or request fewer "
            "at the same time");
  const absl::StatusOr<AdmittedCaller> bob = limit.Admit({"bob", true});
  ASSERT_TRUE(bob.ok());
  EXPECT_EQ(bob->actor.name, "bob");
  EXPECT_TRUE(bob->actor.is_admin);
  alice.pop_back();
  EXPECT_TRUE(limit.Admit({"alice"}).ok());
}

TEST(CallerLimitTest, StreamMayOutliveTheLimit) {
  std::optional<CallerLimit> limit(std::in_place, "execs", 1);
  const AdmittedCaller nameless = *limit->Admit({""});
  EXPECT_EQ(limit->Admit({""}).status().message(),
            "the caller has 1 open execs, the limit for one caller; close some, or request fewer "
            "at the same time");
  limit.reset();
}

}  // namespace
}  // namespace muster::service
