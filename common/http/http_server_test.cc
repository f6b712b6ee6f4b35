#include "common/http/http_server.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/http/endpoints.h"
#include "common/http/http_get.h"
#include "common/security/authority.h"
#include "common/security/certificate.h"
#include "common/security/openssl.h"
#include "common/security/private_file.h"
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

TEST_F(HttpServerTest, ListensOnIpv6) {
  if (!CheckListen({"::1", 0}).ok()) GTEST_SKIP() << "this machine has no IPv6";
  auto server = HttpServer::Start("[::1]:0");
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->Handle("/a", [](const Request&) { return Response{200, kPlainText, "six"}; });
  const auto result = Get((*server)->address(), "/a");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->body, "six");
  EXPECT_THAT((*server)->address().ToString(), testing::StartsWith("[::1]:"));
}

// Sends `text` and returns the response, up to the end of the connection.
std::string Exchange(const Address& address, const std::string& text) {
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(address.port);
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)), 0);
  EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  std::string response;
  char buffer[4096];
  for (ssize_t n = 0; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) response.append(buffer, n);
  close(fd);
  return response;
}

TEST_F(HttpServerTest, RejectsMalformedRequests) {
  server_->Handle("/a", [](const Request&) { return Response{200, kPlainText, "x"}; });
  for (const std::string head :
       {"GET /a\r\n\r\n", "GET a HTTP/1.1\r\n\r\n", "GET /a HTTP/2.0\r\n\r\n", "\r\n\r\nx",
        "GET /a HTTP/1.1\r\nname\r\n\r\n", "GET /a HTTP/1.1\r\nna me: x\r\n\r\n"}) {
    EXPECT_THAT(Exchange(server_->address(), head), testing::AnyOf("", HasSubstr(" 400 "))) << head;
  }
  const std::string large = "GET /a HTTP/1.1\r\nX: " + std::string(20'000, 'x');
  EXPECT_THAT(Exchange(server_->address(), large), HasSubstr(" 400 "));
  // An unread request body does not discard the response.
  EXPECT_THAT(
      Exchange(server_->address(), "POST /a HTTP/1.1\r\nContent-Length: 9\r\n\r\n123456789"),
      HasSubstr(" 405 "));
  EXPECT_EQ(MustGet("/a").body, "x");
}

TEST_F(HttpServerTest, AClientThatSendsNothingIsDisconnected) {
  EXPECT_EQ(Exchange(server_->address(), "GET /a HT"), "");
}

// Slow clients give way to others, also to those of the same address.
TEST_F(HttpServerTest, SlowClientsDelayNoOthers) {
  server_->Handle("/a", [](const Request&) { return Response{200, kPlainText, "x"}; });
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(server_->address().port);
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<int> slow;
  for (int i = 0; i < 150; ++i) {
    slow.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(slow.back(), reinterpret_cast<sockaddr*>(&peer), sizeof(peer)), 0);
    send(slow.back(), "G", 1, MSG_NOSIGNAL);
  }
  // Each thread would wait two seconds for a slow client, and there are twice as many of these.
  const absl::Time start = absl::Now();
  EXPECT_EQ(MustGet("/a").body, "x");
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  for (const int fd : slow) close(fd);
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

TEST_F(HttpServerTest, ServesPostForItsOwnPaths) {
  server_->Handle("/a", [](const Request&) { return Response{200, kPlainText, "got"}; });
  server_->HandlePost("/b", [](const Request& request) {
    return Response{200, kPlainText, absl::StrCat("posted from ", request.peer)};
  });
  EXPECT_EQ(MustGet("/b", "POST").body, "posted from 127.0.0.1");
  EXPECT_EQ(MustGet("/b").status, 404);
  EXPECT_EQ(MustGet("/a", "POST").status, 405);
}

// A server with a certificate.
class TlsTest : public HttpServerTest {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tls.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    const std::string key = *security::NewPrivateKey();
    Write("server.key", key);
    Write("server.pem", *authority_.Issue(*security::PublicKeyOf(key),
                                          {"server", {"127.0.0.1"}, "", security::Usage::kServer},
                                          security::NewSerial(),
                                          security::ValidFor(absl::Minutes(30), absl::Now())));
    Write("ca.pem", authority_.certificate());
    auto server = HttpServer::Start("127.0.0.1:0", kMaxStreams,
                                    {directory_ + "/server.pem", directory_ + "/server.key", ""});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Handle("/a", [](const Request& request) {
      return Response{200, kPlainText, absl::StrCat(request.peer, request.tls ? " tls" : " plain")};
    });
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(security::WritePrivateFile(directory_ + "/" + name, text, /*lock=*/false).ok());
  }
  // Sends a request over TLS. Returns the response, or what has arrived of it when the client gives
  // up after `limit` bytes; nothing without a handshake.
  std::string Fetch(absl::string_view target = "/a", size_t limit = 1 << 20) {
    // On this thread only: the server must not rely on it.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    const security::OwnedSslContext context(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_load_verify_locations(context.get(), (directory_ + "/ca.pem").c_str(), nullptr);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    const security::OwnedBio bio(BIO_new_ssl_connect(context.get()));
    BIO_set_conn_hostname(bio.get(), server_->address().ToString().c_str());
    const std::string request = absl::StrCat("GET ", target, " HTTP/1.1\r\n\r\n");
    std::string response;
    if (BIO_do_connect(bio.get()) != 1 ||
        BIO_write(bio.get(), request.data(), static_cast<int>(request.size())) <= 0) {
      return response;
    }
    char buffer[4096];
    int size = 0;
    while (response.size() < limit && (size = BIO_read(bio.get(), buffer, sizeof(buffer))) > 0) {
      response.append(buffer, size);
    }
    return response;
  }

  const security::Authority authority_ =
      *security::Authority::Create("CA", security::ValidFor(absl::Hours(1), absl::Now()));
  std::string directory_;
};

TEST_F(TlsTest, ServesTlsAndPlaintextToThoseWhoBeginIt) {
  EXPECT_TRUE(server_->serves_tls());
  EXPECT_THAT(Fetch(), HasSubstr("\r\n\r\n127.0.0.1 tls"));
  EXPECT_EQ(MustGet("/a").body, "127.0.0.1 plain");
  // Begins a handshake, and sends no more.
  EXPECT_EQ(Exchange(server_->address(), "\x16\x03\x01"), "");
}

TEST_F(TlsTest, ClientThatLeavesEndsItsStream) {
  absl::Notification ended;
  server_->Handle("/stream", [&ended](const Request&) {
    return Response{200, kEventStream, "", {}, [&ended](BodyStream& stream) {
                      while (stream.Write(std::string(1 << 20, 'x'))) {
                      }
                      ended.Notify();
                    }};
  });
  EXPECT_GE(Fetch("/stream", 1).size(), 1u);
  ended.WaitForNotification();
  EXPECT_THAT(Fetch(), HasSubstr("tls"));
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
