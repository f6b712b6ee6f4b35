#include "cli/client.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "cli/fake_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

ClusterClient::Options OptionsFor(const std::string& address) {
  ClusterClient::Options options;
  options.address = address;
  return options;
}

TEST(ClientTest, ReportsAddressWhenCoordinatorIsUnreachable) {
  FakeCluster cluster;
  cluster.Start();
  cluster.Stop();  // leaves a port that nothing listens on
  ClusterClient::Options options = OptionsFor(cluster.address());
  options.patience = absl::Milliseconds(100);
  ClusterClient client(options);
  const absl::Status status = client.GetJob("a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            absl::StrCat("no coordinator at ", cluster.address(),
                         " (Connection refused); set --coordinator or MUSTER_COORDINATOR to "
                         "another address"));
  EXPECT_EQ(client.SubmitJob({}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ClientTest, ReachesACoordinatorThatStartsLate) {
  FakeCluster cluster;
  cluster.on_get = [](const v1::GetJobRequest&, v1::Job*) { return grpc::Status::OK; };
  cluster.Start();
  cluster.Stop();
  ClusterClient::Options options = OptionsFor(cluster.address());
  options.patience = absl::Seconds(2);
  ClusterClient client(options);
  EXPECT_EQ(client.GetJob("a").status().code(), absl::StatusCode::kUnavailable);
  cluster.Start();
  EXPECT_EQ(client.GetJob("a").status(), absl::OkStatus());
}

// The first response is lost; the second attempt must carry the same key.
TEST(ClientTest, RetriesSubmitWithTheSameKey) {
  FakeCluster cluster;
  std::vector<std::string> keys;
  cluster.on_submit = [&keys](const v1::SubmitJobRequest& request,
                              v1::SubmitJobResponse* response) {
    keys.push_back(request.idempotency_key());
    if (keys.size() == 1) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
    response->mutable_job()->set_job_id("a-1");
    return grpc::Status::OK;
  };
  cluster.Start();
  ClusterClient client(OptionsFor(cluster.address()));
  const auto response = client.SubmitJob({});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->job().job_id(), "a-1");
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_EQ(keys[0].size(), 32u);
  v1::SubmitJobRequest with_key;
  with_key.set_idempotency_key("mine");
  ASSERT_TRUE(client.SubmitJob(with_key).ok());
  EXPECT_EQ(keys[2], "mine");
}

TEST(ClientTest, DoesNotRetryOtherErrors) {
  FakeCluster cluster;
  std::atomic<int> calls = 0;
  cluster.on_get = [&calls](const v1::GetJobRequest& request, v1::Job*) {
    ++calls;
    return grpc::Status(grpc::StatusCode::NOT_FOUND, absl::StrCat("no job ", request.job_id()));
  };
  cluster.Start();
  ClusterClient client(OptionsFor(cluster.address()));
  EXPECT_EQ(client.GetJob("x").status(), absl::NotFoundError("no job x"));
  EXPECT_EQ(calls, 1);
}

// An UNAVAILABLE status from a reachable coordinator keeps its message.
TEST(ClientTest, PassesOnUnavailableFromTheServer) {
  FakeCluster cluster;
  cluster.on_log = [](const v1::ReadLogRequest&, grpc::ServerContext&, auto) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "node-1 is away");
  };
  cluster.Start();
  ClusterClient client(OptionsFor(cluster.address()));
  Stopper stopper;
  const auto call = client.ReadLog({}, stopper);
  v1::LogChunk chunk;
  EXPECT_FALSE(call->Next(chunk));
  EXPECT_EQ(call->Finish(), absl::UnavailableError("node-1 is away"));
}

TEST(ClientTest, StopperEndsAStream) {
  FakeCluster cluster;
  cluster.on_watch = [](const v1::WatchJobRequest&, grpc::ServerContext& context, auto write) {
    write(v1::Job());
    FakeCluster::WaitUntilCancelled(context);
    return grpc::Status::OK;
  };
  cluster.Start();
  ClusterClient client(OptionsFor(cluster.address()));
  Stopper stopper;
  const absl::Status status = client.WatchJob("a", stopper, [&stopper](const v1::Job&) {
    stopper.Stop();
    return true;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  Stopper other;
  EXPECT_TRUE(client.WatchJob("a", other, [](const v1::Job&) { return false; }).ok());
}

TEST(ClientTest, KeysDiffer) { EXPECT_NE(NewIdempotencyKey(), NewIdempotencyKey()); }

}  // namespace
}  // namespace muster::cli
