#include "cli/client.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

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

TEST(ClientTest, CallsOnlyMethodsOfTheService) {
  FakeCluster cluster;
  cluster.Start();
  ClusterClient client(OptionsFor(cluster.address()));
  const absl::Status status = client.Call<v1::Node>(v1::GetJobRequest()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "no call takes muster.v1.GetJobRequest and returns muster.v1.Node");
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

// Adds items to a page of a list of 5, which has 2 of them, beginning with that of the token.
template <typename Response, typename Add>
grpc::Status Page(const std::string& token, Response* response, Add add) {
  const int first = token.empty() ? 0 : std::stoi(token);
  for (int i = first; i < std::min(first + 2, 5); ++i) add(absl::StrCat("item-", i));
  if (first + 2 < 5) response->set_next_page_token(absl::StrCat(first + 2));
  return grpc::Status::OK;
}

TEST(ClientTest, ReadsListsToTheirEnd) {
  FakeCluster cluster;
  cluster.on_list = [](const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
    return Page(request.page_token(), response, [&](const std::string& item) {
      response->add_jobs()->set_job_id(item);
      response->add_arrays()->set_array_id(item);
    });
  };
  cluster.on_get_queue = [](const v1::GetQueueRequest& request, v1::GetQueueResponse* response) {
    response->add_owners()->set_owner("alice");  // not paged
    return Page(request.page_token(), response, [&](const std::string& item) {
      response->add_jobs()->mutable_job()->set_job_id(item);
    });
  };
  cluster.on_get_array = [](const v1::GetArrayRequest& request, v1::GetArrayResponse* response) {
    EXPECT_EQ(request.array_id(), "sweep");
    return Page(request.page_token(), response,
                [&](const std::string& item) { response->add_tasks()->set_job_id(item); });
  };
  cluster.on_get_report = [](const v1::GetReportRequest& request, v1::GetReportResponse* response) {
    EXPECT_EQ(request.days(), 30u);
    response->mutable_total()->add_causes()->set_cause("queued");  // not paged
    return Page(request.page_token(), response,
                [&](const std::string& item) { response->add_owners()->set_owner(item); });
  };
  cluster.on_list_secrets = [](const v1::ListSecretsRequest& request,
                               v1::ListSecretsResponse* response) {
    return Page(request.page_token(), response,
                [&](const std::string& item) { response->add_secrets()->set_name(item); });
  };
  cluster.on_list_nodes = [](const v1::ListNodesRequest& request, v1::ListNodesResponse* response) {
    return Page(request.page_token(), response,
                [&](const std::string& item) { response->add_nodes()->set_name(item); });
  };
  cluster.on_list_events = [](const v1::ListEventsRequest& request,
                              v1::ListEventsResponse* response) {
    EXPECT_EQ(request.job_id(), "a");
    for (uint64_t i = 1; i <= 2; ++i) {
      response->add_events()->set_sequence(request.after_sequence() + i);
    }
    response->set_more(request.after_sequence() < 4);
    return grpc::Status::OK;
  };
  cluster.Start();
  ClusterClient client(OptionsFor(cluster.address()));
  const auto jobs = client.ListJobs({});
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->jobs_size(), 5);
  EXPECT_EQ(jobs->arrays_size(), 5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(jobs->jobs(i).job_id(), absl::StrCat("item-", i));
  EXPECT_EQ(jobs->next_page_token(), "");
  const auto queue = client.GetQueue();
  EXPECT_EQ(queue->jobs_size(), 5);
  EXPECT_EQ(queue->owners_size(), 1);
  EXPECT_EQ(client.GetArray("sweep")->tasks_size(), 5);
  const auto report = client.GetReport(30);
  EXPECT_EQ(report->owners_size(), 5);
  EXPECT_EQ(report->total().causes_size(), 1);
  EXPECT_EQ(client.ListSecrets()->secrets_size(), 5);
  EXPECT_EQ(client.ListNodes()->nodes_size(), 5);
  v1::ListEventsRequest events;
  events.set_job_id("a");
  const auto all = client.ListEvents(events);
  ASSERT_EQ(all->events_size(), 6);
  EXPECT_EQ(all->events(5).sequence(), 6u);
}

TEST(ClientTest, ReadsNoMoreThanTheLimitAndFailsWithAPage) {
  FakeCluster cluster;
  std::vector<uint32_t> limits;
  bool broken = false;
  cluster.on_list = [&](const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
    limits.push_back(request.limit());
    if (broken && !request.page_token().empty()) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "page_token: unknown");
    }
    uint32_t room = request.limit();
    return Page(request.page_token(), response, [&](const std::string& item) {
      if (room-- > 0) response->add_jobs()->set_job_id(item);
    });
  };
  cluster.Start();
  ClusterClient client(OptionsFor(cluster.address()));
  v1::ListJobsRequest request;
  request.set_limit(3);
  const auto jobs = client.ListJobs(request);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_EQ(jobs->jobs_size(), 3);
  EXPECT_NE(jobs->next_page_token(), "");
  EXPECT_EQ(limits, (std::vector<uint32_t>{3, 1}));
  broken = true;
  EXPECT_EQ(client.ListJobs(request).status(), absl::InvalidArgumentError("page_token: unknown"));
}

TEST(ClientTest, KeysDiffer) { EXPECT_NE(NewIdempotencyKey(), NewIdempotencyKey()); }

class FindArrayTest : public ::testing::Test {
 protected:
  FindArrayTest() {
    cluster_.on_get = [](const v1::GetJobRequest& request, v1::Job* job) {
      if (request.job_id() == "sweep") {
        return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "job sweep is ambiguous");
      }
      if (request.job_id() != "train-x7k2") {
        return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job " + request.job_id());
      }
      job->set_job_id("train-x7k2");
      return grpc::Status::OK;
    };
    cluster_.on_get_array = [](const v1::GetArrayRequest& request, v1::GetArrayResponse* response) {
      if (request.array_id() == "other") {
        return grpc::Status(grpc::StatusCode::NOT_FOUND, "no array other");
      }
      response->mutable_array()->set_array_id("sweep-9qd3a");
      return grpc::Status::OK;
    };
    cluster_.Start();
  }

  absl::StatusOr<JobOrArray> Find(const std::string& name) {
    ClusterClient::Options options;
    options.address = cluster_.address();
    ClusterClient client(options);
    return FindJobOrArray(client, name);
  }

  FakeCluster cluster_;
};

TEST_F(FindArrayTest, PrefersJobs) {
  const absl::StatusOr<JobOrArray> found = Find("train-x7k2");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(std::get<v1::Job>(*found).job_id(), "train-x7k2");
}

TEST_F(FindArrayTest, FindsArraysThatNoJobOrSeveralTasksMatch) {
  for (const char* name : {"sweep-9qd3a", "sweep"}) {
    const absl::StatusOr<JobOrArray> found = Find(name);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(std::get<v1::GetArrayResponse>(*found).array().array_id(), "sweep-9qd3a");
  }
}

TEST_F(FindArrayTest, ReportsTheErrorForTheJob) {
  EXPECT_EQ(Find("other").status().message(), "no job other");
}

}  // namespace

}  // namespace muster::cli
