#include "worker/agent/job_user.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Users that every Debian system has.
constexpr char kDaemon[] = "daemon";
constexpr uid_t kDaemonUid = 1;
constexpr char kNobody[] = "nobody";

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(JobUsersTest, DefaultIsTheWorkersOwnUser) {
  const auto users = JobUsers::Open("", 1000, "node-1");
  ASSERT_TRUE(users.ok()) << users.status();
  EXPECT_FALSE(users->enabled());
  const auto user = users->Of("alice");
  ASSERT_TRUE(user.ok()) << user.status();
  EXPECT_FALSE(user->has_value());
}

TEST(JobUsersTest, RefusesUnknownUserAndRoot) {
  const absl::Status unknown = JobUsers::Open("no-such-user", 1000, "node-1").status();
  EXPECT_TRUE(absl::IsInvalidArgument(unknown)) << unknown;
  EXPECT_THAT(Text(unknown), HasSubstr("--job-user: this machine has no user 'no-such-user'"));
  const absl::Status root = JobUsers::Open("root", 0, "node-1").status();
  EXPECT_TRUE(absl::IsInvalidArgument(root)) << root;
  EXPECT_THAT(Text(root), HasSubstr("is root"));
}

TEST(JobUsersTest, NeedsCapabilities) {
  if (geteuid() == 0) GTEST_SKIP() << "requires a user that is not root";
  const absl::Status status = JobUsers::Open(JobUsers::kOwner, 1000, "node-1").status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(Text(status), AllOf(HasSubstr("start it as root"), HasSubstr("CAP_SETUID")));
}

class JobUsersAsRootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "requires root";
  }
};

TEST_F(JobUsersAsRootTest, ResolvesNamedUser) {
  const auto users = JobUsers::Open(kDaemon, 1000, "node-1");
  ASSERT_TRUE(users.ok()) << users.status();
  const auto user = users->Of("alice");  // the owner and the minimum do not matter
  ASSERT_TRUE(user.ok() && user->has_value()) << user.status();
  EXPECT_EQ((*user)->name, kDaemon);
  EXPECT_EQ((*user)->credentials.uid, kDaemonUid);
  EXPECT_FALSE((*user)->home.empty());
  const auto& groups = (*user)->credentials.groups;
  EXPECT_NE(std::find(groups.begin(), groups.end(), (*user)->credentials.gid), groups.end());
  EXPECT_EQ(std::find(groups.begin(), groups.end(), 0), groups.end());
}

TEST_F(JobUsersAsRootTest, ResolvesOwner) {
  const auto users = JobUsers::Open(JobUsers::kOwner, 1000, "node-1");
  ASSERT_TRUE(users.ok()) << users.status();
  const auto user = users->Of(kNobody);
  ASSERT_TRUE(user.ok() && user->has_value()) << user.status();
  EXPECT_EQ((*user)->name, kNobody);
}

TEST_F(JobUsersAsRootTest, RefusesOwnersWithoutSuitableUser) {
  const auto users = JobUsers::Open(JobUsers::kOwner, 1000, "node-1");
  ASSERT_TRUE(users.ok()) << users.status();
  struct Case {
    const char* owner;
    const char* text;
  };
  for (const Case& refused :
       {Case{"no-such-user", "it has no Unix user 'no-such-user'"},
        Case{"", "the coordinator names no owner"}, Case{"root", "is root"},
        Case{"0", "it has no Unix user '0'"}, Case{kDaemon, "has uid 1; the minimum is 1000"}}) {
    const absl::Status status = users->Of(refused.owner).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(Text(status),
                AllOf(HasSubstr(refused.text), HasSubstr("node node-1 cannot run ranks of owner '" +
                                                         std::string(refused.owner) + "'")));
  }
}

TEST_F(JobUsersAsRootTest, RootIsRefusedWithAnyMinimum) {
  const auto users = JobUsers::Open(JobUsers::kOwner, 0, "node-1");
  ASSERT_TRUE(users.ok()) << users.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(users->Of("root").status()));
  EXPECT_TRUE(users->Of(kDaemon).ok());
}

}  // namespace
}  // namespace muster::agent
