#include "coordinator/service/http/viewer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "0123456789abcdef";

http::Request RequestTo(const std::string& host, const std::string& token = "") {
  http::Request request;
  request.headers["host"] = host;
  if (!token.empty()) request.headers["authorization"] = "Bearer " + token;
  return request;
}

class ViewerTest : public ::testing::Test {
 protected:
  ViewerTest() {
    AccessOptions access;
    access.local_token = kToken;
    authorizer_ = *Authorizer::Create(access);
  }
  std::unique_ptr<Authorizer> authorizer_;
};

TEST_F(ViewerTest, LoopbackNeedsNoToken) {
  ViewerCheck check({"127.0.0.1", 7071}, *authorizer_);
  for (const char* const host : {"127.0.0.1:7071", "localhost:7071", "localhost", "[::1]:9"}) {
    const absl::StatusOr<Viewer> viewer = check.Check(RequestTo(host));
    ASSERT_TRUE(viewer.ok()) << host;
    EXPECT_FALSE(viewer->actor.has_value());
  }
}

// Another site's name may resolve to the loopback address.
TEST_F(ViewerTest, LoopbackRefusesOtherHosts) {
  ViewerCheck check({"127.0.0.1", 7071}, *authorizer_);
  for (const char* const host :
       {"", "example.com", "127.example.com:7071", "localhost.example.com", "10.0.0.1:7071"}) {
    EXPECT_EQ(check.Check(RequestTo(host)).status().code(), absl::StatusCode::kPermissionDenied)
        << host;
    EXPECT_FALSE(check.Check(RequestTo(host, kToken)).ok()) << host;
  }
}

TEST_F(ViewerTest, RefusesRequestsOfOtherSites) {
  ViewerCheck check({"127.0.0.1", 7071}, *authorizer_);
  http::Request request = RequestTo("localhost:7071");
  for (const char* const site : {"cross-site", "same-site"}) {
    request.headers["sec-fetch-site"] = site;
    EXPECT_THAT(std::string(check.Check(request).status().message()),
                HasSubstr("another web site"));
  }
  for (const char* const site : {"same-origin", "none"}) {
    request.headers["sec-fetch-site"] = site;
    EXPECT_TRUE(check.Check(request).ok()) << site;
  }
}

TEST_F(ViewerTest, BeyondLoopbackATokenIsNeeded) {
  ViewerCheck check({"0.0.0.0", 7071}, *authorizer_);
  EXPECT_TRUE(check.needs_token());
  const std::string host = "cluster.example.com:7071";
  EXPECT_EQ(check.Check(RequestTo(host)).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(check.Check(RequestTo(host, "fedcba9876543210")).status().code(),
            absl::StatusCode::kUnauthenticated);
  const absl::StatusOr<Viewer> viewer = check.Check(RequestTo(host, kToken));
  ASSERT_TRUE(viewer.ok()) << viewer.status();
  EXPECT_TRUE(viewer->actor->is_admin);
}

TEST_F(ViewerTest, WrongTokenIsRefusedOnLoopbackToo) {
  ViewerCheck check({"127.0.0.1", 7071}, *authorizer_);
  EXPECT_FALSE(check.Check(RequestTo("localhost", "fedcba9876543210")).ok());
}

TEST(Viewer, PrivatePartsNeedTheOwner) {
  v1::Job job;
  job.set_job_id("job");
  job.set_owner("alice");
  EXPECT_EQ(Viewer().CheckPrivate(job).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(Viewer{core::Actor{"bob"}}.CheckPrivate(job).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(Viewer{core::Actor{"alice"}}.CheckPrivate(job).ok());
  EXPECT_TRUE((Viewer{core::Actor{"root", true}}.CheckPrivate(job).ok()));
  job.clear_owner();
  EXPECT_EQ(Viewer().CheckPrivate(job).code(), absl::StatusCode::kUnauthenticated);
}

}  // namespace
}  // namespace muster::service
