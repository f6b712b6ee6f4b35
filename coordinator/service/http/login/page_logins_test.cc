#include "coordinator/service/http/login/page_logins.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;

class PageLoginsTest : public ::testing::Test {
 protected:
  std::string Add(const std::string& user) { return secrets_.Add(user, {.token = user}); }
  // The user of the secret; empty if it is not valid.
  std::string UserOf(const std::string& secret) {
    const std::optional<Authorizer::Caller> caller = secrets_.Find(secret);
    return caller.has_value() ? *caller->token : "";
  }
  std::function<Time()> clock_ = [this] { return now_; };
  Time now_{SteadyTime(absl::Hours(1)), absl::Time()};
  CallerSecrets secrets_{absl::Minutes(5), 2, clock_};
  PageLogins logins_{clock_};
};

TEST_F(PageLoginsTest, SecretIsTakenOnce) {
  const std::string secret = Add("alice");
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(UserOf(secret), "alice");
  EXPECT_EQ(secrets_.Take(secret)->token, "alice");
  EXPECT_FALSE(secrets_.Take(secret).has_value());
  EXPECT_EQ(UserOf(secret), "");
  EXPECT_EQ(UserOf(""), "");
}

TEST_F(PageLoginsTest, SecretExpires) {
  const std::string found = Add("alice"), taken = Add("alice");
  now_.steady = now_.steady + absl::Minutes(5) - absl::Seconds(1);
  EXPECT_EQ(UserOf(found), "alice");
  now_.steady = now_.steady + absl::Seconds(1);
  EXPECT_EQ(UserOf(found), "");
  EXPECT_FALSE(secrets_.Take(taken).has_value());
}

TEST_F(PageLoginsTest, SecretBeyondTheLimitReplacesTheOldestOfItsUser) {
  const std::string other = Add("bob");
  std::vector<std::string> own;
  for (int i = 0; i < 4; ++i) {
    now_.steady = now_.steady + absl::Seconds(1);
    own.push_back(Add("alice"));
  }
  EXPECT_EQ(UserOf(own[0]) + UserOf(own[1]), "");
  EXPECT_EQ(UserOf(own[2]) + UserOf(own[3]), "alicealice");
  EXPECT_EQ(UserOf(other), "bob");
}

TEST_F(PageLoginsTest, AddressThatFailsOftenIsSlowedDown) {
  FailedSignIns& failures = logins_.failures;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(failures.Check("10.0.0.7").ok()) << i;
    failures.Add("10.0.0.7");
  }
  const absl::Status refused = failures.Check("10.0.0.7");
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("10.0.0.7; try again in 10 s"));
  EXPECT_TRUE(failures.Check("10.0.0.8").ok());
  now_.steady = now_.steady + absl::Seconds(10);
  EXPECT_TRUE(failures.Check("10.0.0.7").ok());
  failures.Add("10.0.0.7");
  EXPECT_FALSE(failures.Check("10.0.0.7").ok());
}

TEST_F(PageLoginsTest, PageOnLoopbackIsReachableFromThereOnly) {
  logins_.address = {"127.0.0.1", 7071};
  EXPECT_TRUE(logins_.CheckReachable("127.0.0.1").ok());
  const absl::Status elsewhere = logins_.CheckReachable("10.0.0.7");
  EXPECT_TRUE(absl::IsFailedPrecondition(elsewhere));
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("--http=0.0.0.0:7071"));
  logins_.address.host = "0.0.0.0";
  EXPECT_TRUE(logins_.CheckReachable("10.0.0.7").ok());
}

}  // namespace
}  // namespace muster::service
