#include "cli/find_array.h"

#include "cli/fake_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

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
