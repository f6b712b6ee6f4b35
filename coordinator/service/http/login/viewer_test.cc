#include "coordinator/service/http/login/viewer.h"

#include "absl/strings/str_cat.h"
#include "common/time/now.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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
    // The page needs none.
    access.require_certificate = true;
    authorizer_ = *Authorizer::Create(access, [this] { return now_; });
    logins_.address = {"127.0.0.1", 7071};
  }

  // A request with the session that this value of Set-Cookie has opened.
  static http::Request WithSession(const std::string& cookie) {
    http::Request request = RequestTo("localhost");
    request.headers["cookie"] = absl::StrCat("other=1; ", cookie.substr(0, cookie.find(';')));
    return request;
  }
  bool IsSignedIn(ViewerCheck& check, const http::Request& request) {
    return check.Check(request).ok();
  }

  Time now_ = Now();
  std::unique_ptr<Authorizer> authorizer_;
  PageLogins logins_{[this] { return now_; }};
};

TEST_F(ViewerTest, ASignInIsNeededOnLoopbackAndBeyond) {
  for (const char* const address : {"127.0.0.1", "0.0.0.0"}) {
    logins_.address.host = address;
    ViewerCheck check(*authorizer_, logins_);
    for (const char* const host : {"127.0.0.1:7071", "localhost:7071", "localhost", "[::1]:9"}) {
      EXPECT_TRUE(check.CheckRequest(RequestTo(host)).ok()) << host;
      EXPECT_TRUE(absl::IsUnauthenticated(check.Check(RequestTo(host)).status())) << host;
      EXPECT_TRUE(
          absl::IsUnauthenticated(check.Check(RequestTo(host, "fedcba9876543210")).status()));
      const absl::StatusOr<core::Actor> viewer = check.Check(RequestTo(host, kToken));
      ASSERT_TRUE(viewer.ok()) << viewer.status();
      EXPECT_TRUE(viewer->is_admin);
    }
  }
}

// Another site's name may resolve to the loopback address.
TEST_F(ViewerTest, LoopbackRefusesOtherHosts) {
  ViewerCheck check(*authorizer_, logins_);
  for (const char* const host :
       {"", "example.com", "127.example.com:7071", "localhost.example.com", "10.0.0.1:7071"}) {
    EXPECT_EQ(check.Check(RequestTo(host)).status().code(), absl::StatusCode::kPermissionDenied)
        << host;
    EXPECT_FALSE(check.Check(RequestTo(host, kToken)).ok()) << host;
  }
}

TEST_F(ViewerTest, RefusesRequestsOfOtherSites) {
  ViewerCheck check(*authorizer_, logins_);
  http::Request request = RequestTo("localhost:7071");
  for (const char* const site : {"cross-site", "same-site"}) {
    request.headers["sec-fetch-site"] = site;
    EXPECT_THAT(std::string(check.CheckRequest(request).message()), HasSubstr("another web site"));
    EXPECT_TRUE(absl::IsPermissionDenied(check.Check(request).status()));
  }
  for (const char* const site : {"same-origin", "none"}) {
    request.headers["sec-fetch-site"] = site;
    EXPECT_TRUE(check.CheckRequest(request).ok()) << site;
  }
}

TEST_F(ViewerTest, TokenOpensASession) {
  ViewerCheck check(*authorizer_, logins_);
  http::Request request = RequestTo("localhost", kToken);
  const absl::StatusOr<std::string> cookie = check.SignIn(request);
  ASSERT_TRUE(cookie.ok()) << cookie.status();
  EXPECT_THAT(*cookie, HasSubstr("; Path=/api; HttpOnly; SameSite=Strict; Max-Age=43200"));
  EXPECT_THAT(*cookie, Not(HasSubstr("Secure")));
  request.tls = true;
  EXPECT_THAT(*check.SignIn(request), HasSubstr("; Secure"));

  http::Request session = WithSession(*cookie);
  EXPECT_TRUE(check.Check(session)->is_admin);
  session.headers["sec-fetch-site"] = "cross-site";
  EXPECT_FALSE(check.Check(session).ok());
  EXPECT_FALSE(check.SignOut(session).ok());
  session.headers.erase("sec-fetch-site");
  EXPECT_THAT(*check.SignOut(session), HasSubstr("Max-Age=0"));
  EXPECT_FALSE(IsSignedIn(check, session));
  EXPECT_TRUE(absl::IsUnauthenticated(check.SignOut(session).status()));
}

TEST_F(ViewerTest, SessionEnds) {
  ViewerCheck check(*authorizer_, logins_);
  const http::Request session = WithSession(*check.SignIn(RequestTo("localhost", kToken)));
  now_.steady = now_.steady + absl::Hours(12) - absl::Seconds(1);
  EXPECT_TRUE(IsSignedIn(check, session));
  now_.steady = now_.steady + absl::Seconds(1);
  EXPECT_FALSE(IsSignedIn(check, session));
}

TEST_F(ViewerTest, CodeOpensOneSession) {
  ViewerCheck check(*authorizer_, logins_);
  Authorizer::Caller caller{.token = absl::StrCat("Bearer ", kToken), .browser = true};
  http::Request request = RequestTo("localhost");
  request.headers["authorization"] = "Login " + logins_.codes.Add("local", caller);
  EXPECT_FALSE(check.Check(request).ok()) << "a code is no token";
  const absl::StatusOr<std::string> cookie = check.SignIn(request);
  ASSERT_TRUE(cookie.ok()) << cookie.status();
  EXPECT_TRUE(IsSignedIn(check, WithSession(*cookie)));
  const absl::Status again = check.SignIn(request).status();
  EXPECT_TRUE(absl::IsUnauthenticated(again));
  EXPECT_THAT(std::string(again.message()), HasSubstr("was used or has expired"));
}

// A session is no more than its caller, who is checked at each request.
TEST_F(ViewerTest, SessionEndsWithTheRightsOfItsCaller) {
  ViewerCheck check(*authorizer_, logins_);
  security::CertificateInfo certificate;
  certificate.not_after = now_.wall + absl::Hours(1);
  const Authorizer::Caller caller{
      .token = absl::StrCat("Bearer ", kToken), .certificate = certificate, .browser = true};
  http::Request request = RequestTo("localhost");
  request.headers["authorization"] = "Login " + logins_.codes.Add("local", caller);
  const http::Request session = WithSession(*check.SignIn(request));
  EXPECT_TRUE(IsSignedIn(check, session));
  now_.wall = certificate.not_after;
  EXPECT_FALSE(IsSignedIn(check, session));
}

TEST_F(ViewerTest, WrongTokensAreSlowedDown) {
  ViewerCheck check(*authorizer_, logins_);
  http::Request wrong = RequestTo("localhost", "fedcba9876543210");
  wrong.peer = "10.0.0.7";
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(absl::IsUnauthenticated(i % 2 == 0 ? check.Check(wrong).status()
                                                   : check.SignIn(wrong).status()));
  }
  http::Request right = RequestTo("localhost", kToken);
  right.peer = "10.0.0.7";
  EXPECT_TRUE(absl::IsResourceExhausted(check.SignIn(right).status()));
  // Not guessable, so not limited.
  right.headers["authorization"] =
      "Login " +
      logins_.codes.Add("local", {.token = absl::StrCat("Bearer ", kToken), .browser = true});
  EXPECT_TRUE(check.SignIn(right).ok());
  right = RequestTo("localhost", kToken);
  right.peer = "10.0.0.8";
  EXPECT_TRUE(check.SignIn(right).ok());
}

TEST_F(ViewerTest, BeyondLoopbackTlsIsNeededIfItIsServed) {
  logins_.address.host = "0.0.0.0";
  logins_.tls = true;
  ViewerCheck check(*authorizer_, logins_);
  http::Request request = RequestTo("head:7071", kToken);
  EXPECT_TRUE(check.NeedsTls(request));
  EXPECT_TRUE(absl::IsPermissionDenied(check.Check(request).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(check.SignIn(request).status()));
  request.tls = true;
  EXPECT_TRUE(check.Check(request).ok());
}

}  // namespace
}  // namespace muster::service
