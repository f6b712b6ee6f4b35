#include "cli/follow/array_wait.h"

#include <iostream>
#include <string>
#include <vector>

#include "cli/fake_cluster.h"
#include "cli/follow/quiet_observer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;

// Tasks 1 and 2 fail.
v1::Job Task(const std::string& id) {
  v1::Job job;
  job.set_job_id(id);
  const int index = id.back() - '0';
  job.set_array_index(index);
  job.set_state(index == 0 ? v1::SUCCEEDED : v1::FAILED);
  job.set_exit_code(index == 0 ? 0 : 6 + index);
  return job;
}

TEST(ArrayWaitTest, WaitsForAllTasksAndReturnsTheFirstFailure) {
  FakeCluster cluster;
  cluster.on_get = [](const v1::GetJobRequest& request, v1::Job* job) {
    *job = Task(request.job_id());
    return grpc::Status::OK;
  };
  cluster.on_watch = [](const v1::WatchJobRequest& request, grpc::ServerContext&,
                        const FakeCluster::Writer<v1::Job>& write) {
    write(Task(request.job_id()));
    return grpc::Status::OK;
  };
  v1::GetArrayResponse array;
  array.mutable_array()->set_array_id("sweep");
  for (const char* id : {"sweep-0", "sweep-1", "sweep-2"}) *array.add_tasks() = Task(id);
  cluster.on_get_array = [&](const v1::GetArrayRequest&, v1::GetArrayResponse* response) {
    *response = array;
    response->mutable_array()->set_state(v1::FAILED);
    return grpc::Status::OK;
  };
  cluster.Start();
  ClusterClient::Options options;
  options.address = cluster.address();
  ClusterClient client(options);
  Console console(std::cout, std::cerr, {});
  QuietObserver observer(console);
  Stopper stopper;
  std::vector<std::string> ended;
  const absl::StatusOr<ArrayResult> result =
      WaitForArray(client, array, {}, stopper, observer,
                   [&](const v1::Job& job) { ended.push_back(job.job_id()); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(result->array.array().state(), v1::FAILED);
  EXPECT_THAT(ended, ElementsAre("sweep-0", "sweep-1", "sweep-2"));
}

}  // namespace
}  // namespace muster::cli
