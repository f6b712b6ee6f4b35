// The status page without a sign-in: the content of each path.
#include "coordinator/service/http/status_page.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/http/http_get.h"
#include "coordinator/store/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

constexpr char kToken[] = "0123456789abcdef";

v1::Node MakeNode(const std::string& name, v1::NodeState state) {
  v1::Node node;
  node.set_name(name);
  node.set_state(state);
  node.add_slots()->set_job_id("job-1");
  node.add_slots();
  return node;
}

class StatusPageTest : public ::testing::TestWithParam<const char*> {
 protected:
  StatusPageTest() {
    AccessOptions access;
    access.local_token = kToken;
    authorizer_ = *Authorizer::Create(access);
    page_ = std::make_unique<StatusPage>(loop_, logs_, *authorizer_, logins_,
                                         [this] { return snapshot_; });
    server_ = *http::HttpServer::Start(GetParam(), kPageStreams);
    page_->Register(*server_);
  }
  ~StatusPageTest() override { page_->Stop(); }
  int StatusOf(absl::string_view path, const std::vector<std::string>& headers = {}) {
    const char* const method = absl::ConsumePrefix(&path, "POST ") ? "POST" : "GET";
    return http::Get(server_->address(), path, method, headers)->status;
  }

  nlohmann::json Session(const std::string& token = "") {
    std::vector<std::string> headers;
    if (!token.empty()) headers.push_back(absl::StrCat("Authorization: Bearer ", token));
    return nlohmann::json::parse(
        http::Get(server_->address(), "/api/session", "GET", headers)->body);
  }

  store::MemoryStore store_;
  CoreLoop loop_{std::make_unique<core::Core>(core::Options()), store_, {}};
  WorkerSessions sessions_;
  LogRelay logs_{sessions_};
  PageLogins logins_;
  std::shared_ptr<Snapshot> snapshot_ = std::make_shared<Snapshot>();
  std::unique_ptr<Authorizer> authorizer_;
  std::unique_ptr<StatusPage> page_;
  std::unique_ptr<http::HttpServer> server_;
};

TEST_P(StatusPageTest, EveryPathButTheSessionNeedsASignIn) {
  int refused = 0;
  for (const std::string& path : server_->ListPaths()) {
    if (!absl::StrContains(path, "/api/") || path == "/api/session") continue;
    EXPECT_EQ(StatusOf(path), 401) << path;
    EXPECT_EQ(StatusOf(path, {"Authorization: Bearer fedcba9876543210"}) / 100, 4) << path;
    ++refused;
  }
  EXPECT_GE(refused, 7);
}

TEST_P(StatusPageTest, SessionHasNumbersByStateAndWhoHasSignedIn) {
  snapshot_->nodes = {MakeNode("node-1", v1::READY), MakeNode("node-2", v1::READY),
                      MakeNode("node-3", v1::LOST)};
  v1::Job job;
  int jobs = 0;
  job.set_owner("alice");
  job.mutable_spec()->set_name("secret");
  for (const v1::JobState state : {v1::RUNNING, v1::QUEUED, v1::QUEUED}) {
    job.set_job_id(absl::StrCat("job-", ++jobs));
    job.set_state(state);
    page_->jobs().Put(job);
  }
  const nlohmann::json counts = nlohmann::json::parse(
      R"({"jobs": {"running": 1, "queued": 2}, "nodes": {"ready": 2, "lost": 1},
          "slots": 4, "busy": 2})");
  EXPECT_EQ(Session(), nlohmann::json({{"counts", counts}}));
  EXPECT_EQ(Session("fedcba9876543210"), nlohmann::json({{"counts", counts}}));
  const nlohmann::json session = Session(kToken);
  EXPECT_EQ(session["counts"], counts);
  EXPECT_EQ(session["user"], "local");
}

INSTANTIATE_TEST_SUITE_P(Addresses, StatusPageTest, ::testing::Values("127.0.0.1:0", "0.0.0.0:0"));

}  // namespace
}  // namespace muster::service
