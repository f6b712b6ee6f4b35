#include "common/http/http_server.h"

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/http/endpoints.h"
#include "common/http/http_get.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/counter.h"
#include "prometheus/registry.h"

namespace muster::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HttpServerTest : public ::testing::Test {
 protected:
  static constexpr int kMaxStreams = 2;

  void SetUp() override {
    auto server = HttpServer::Start("127.0.0.1:0", kMaxStreams);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  GetResult MustGet(absl::string_view target, absl::string_view method = "GET",
                    const std::vector<std::string>& headers = {}) {
    auto result = Get(server_->address(), target, method, headers);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(GetResult{});
  }
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ServesOnlyRegisteredPaths) {
  server_->Handle("/a", [](const Request& request) {
    return Response{200, kHtml, "query=" + request.query};
  });
  EXPECT_NE(server_->address().port, 0);
  const GetResult a = MustGet("/a?x=1");
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.body, "query=x=1");
  EXPECT_THAT(a.headers, HasSubstr("Content-Type: text/html"));
  EXPECT_EQ(MustGet("/a/b").status, 404);
  EXPECT_EQ(MustGet("/").status, 404);
  EXPECT_EQ(MustGet("/../../etc/passwd").status, 404);
  EXPECT_EQ(MustGet("/a", "DELETE").status, 405);
}

TEST_F(HttpServerTest, OmitsBodyForHead) {
  server_->Handle("/a", [](const Request&) { return Response{200, kPlainText, "12345"}; });
  const GetResult head = MustGet("/a", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_THAT(head.headers, HasSubstr("Content-Length: 5"));
}

TEST_F(HttpServerTest, DecodesParametersAndHeaders) {
  server_->Handle("/a", [](const Request& request) {
    return Response{200, kPlainText,
                    absl::StrCat(request.Parameter("name"), "|", request.Parameter("other"), "|",
                                 request.Parameter("none"), "|", request.Header("x-word"))};
  });
  EXPECT_EQ(MustGet("/a?name=a%20b%26c+d&other=1=2&name=second", "GET", {"X-Word: hello"}).body,
            "a b&c d|1=2||hello");
  EXPECT_EQ(MustGet("/a?name=%zz&=&&", "GET").status, 200);
}

TEST_F(HttpServerTest, SendsHeadersOfTheResponse) {
  server_->Handle("/a", [](const Request&) {
    return Response{200, kPlainText, "x", {{"Cache-Control", "no-cache"}, {"ETag", "\"1\""}}};
  });
  server_->Handle("/b", [](const Request&) { return Response{200, kPlainText, "x"}; });
  EXPECT_THAT(MustGet("/a").headers, HasSubstr("ETag: \"1\""));
  EXPECT_THAT(MustGet("/a").headers, Not(HasSubstr("no-store")));
  EXPECT_THAT(MustGet("/b").headers, HasSubstr("Cache-Control: no-store"));
}

TEST_F(HttpServerTest, StreamsTheBody) {
  server_->Handle("/a", [](const Request&) {
    return Response{200, kEventStream, "first ", {}, [](BodyStream& stream) {
                      EXPECT_TRUE(stream.Write("second "));
                      EXPECT_TRUE(stream.Write(std::string(1 << 20, 'x')));
                    }};
  });
  const GetResult result = MustGet("/a");
  EXPECT_EQ(result.body.size(), 13u + (1 << 20));
  EXPECT_THAT(result.headers, Not(HasSubstr("Content-Length")));
  EXPECT_EQ(MustGet("/a", "HEAD").body, "");
}

// More streams are opened than there are threads for other requests.
TEST_F(HttpServerTest, OpenStreamsAreBoundedAndDelayNothing) {
  absl::Notification end;
  server_->Handle("/stream", [&end](const Request&) {
    return Response{200, kEventStream, "", {}, [&end](BodyStream&) { end.WaitForNotification(); }};
  });
  server_->Handle("/a", [](const Request&) { return Response{200, kPlainText, "x"}; });
  std::vector<std::thread> clients;
  for (int i = 0; i < kMaxStreams; ++i) clients.emplace_back([this] { MustGet("/stream"); });
  while (server_->open_streams() < kMaxStreams) absl::SleepFor(absl::Milliseconds(1));
  for (int i = 0; i < 20; ++i) {
    const GetResult refused = MustGet("/stream");
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.body, HasSubstr("the limit is 2"));
  }
  EXPECT_EQ(MustGet("/a").body, "x");
  end.Notify();
  for (std::thread& client : clients) client.join();
  while (server_->open_streams() > 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(MustGet("/stream").status, 200);
}

TEST_F(HttpServerTest, EndOfTheServerEndsStreams) {
  absl::Notification started;
  server_->Handle("/stream", [&started](const Request&) {
    return Response{200, kEventStream, "", {}, [&started](BodyStream& stream) {
                      started.Notify();
                      while (stream.Write("x")) absl::SleepFor(absl::Milliseconds(1));
                    }};
  });
  const Address address = server_->address();
  std::thread client([&address] { Get(address, "/stream").IgnoreError(); });
  started.WaitForNotification();
  server_.reset();
  client.join();
}

TEST_F(HttpServerTest, ErrorNamesAPortInUse) {
  const auto second = HttpServer::Start(server_->address().ToString());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server_->address().ToString()));
}

TEST_F(HttpServerTest, ServesMetrics) {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter()
      .Name("muster_x_total")
      .Help("X.")
      .Register(*registry)
      .Add({})
      .Increment();
  HandleMetrics(*server_, {registry});
  const GetResult metrics = MustGet("/metrics");
  EXPECT_THAT(metrics.headers, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(metrics.body, HasSubstr("# TYPE muster_x_total counter"));
  EXPECT_THAT(metrics.body, HasSubstr("muster_x_total 1"));
}

TEST_F(HttpServerTest, HealthNamesFailedChecks) {
  absl::Status disk = absl::OkStatus();
  HandleHealth(*server_, {},
               {{"core", [] { return absl::OkStatus(); }}, {"disk", [&disk] { return disk; }}});
  EXPECT_EQ(MustGet("/livez").body, "ok\n");
  EXPECT_EQ(MustGet("/readyz?verbose").body, "[+]core ok\n[+]disk ok\nok\n");
  disk = absl::UnavailableError("full");
  const GetResult ready = MustGet("/readyz");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, "[-]disk failed: full\nnot ok\n");
}

TEST_F(HttpServerTest, ServesVersion) {
  HandleVersion(*server_);
  EXPECT_THAT(MustGet("/version").body,
              HasSubstr(absl::StrCat("\"protocol_version\":", kProtocolVersion)));
}

}  // namespace
}  // namespace muster::http
