#include "common/http/http_server.h"

#include "absl/strings/str_cat.h"
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

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = HttpServer::Start("127.0.0.1:0");
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  GetResult MustGet(absl::string_view target, absl::string_view method = "GET") {
    auto result = Get(server_->address(), target, method);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(GetResult{});
  }
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ServesOnlyRegisteredPaths) {
  server_->Handle("/a", [](absl::string_view query) {
    return Response{200, kHtml, "query=" + std::string(query)};
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
  server_->Handle("/a", [](absl::string_view) { return Response{200, kPlainText, "12345"}; });
  const GetResult head = MustGet("/a", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_THAT(head.headers, HasSubstr("Content-Length: 5"));
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
