#include "cli/logs/array_logs.h"

#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/fake_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

// An array whose tasks 0 and 1 have finished, and whose task 2 has not started.
class ArrayLogsTest : public ::testing::Test {
 protected:
  ArrayLogsTest() {
    for (uint32_t i = 0; i < 3; ++i) {
      v1::Job& task = *array_.add_tasks();
      task.set_job_id(absl::StrCat("sweep-", i));
      task.set_array_index(i);
      task.set_generation(i < 2 ? 1 : 0);
      task.set_state(i < 2 ? v1::SUCCEEDED : v1::QUEUED);
      if (i < 2) task.add_ranks();
    }
    cluster_.on_get = [this](const v1::GetJobRequest& request, v1::Job* job) {
      *job = Task(request.job_id());
      return grpc::Status::OK;
    };
    cluster_.on_watch = [this](const v1::WatchJobRequest& request, grpc::ServerContext&,
                               const FakeCluster::Writer<v1::Job>& write) {
      write(Task(request.job_id()));
      return grpc::Status::OK;
    };
    cluster_.on_log = [](const v1::ReadLogRequest& request, grpc::ServerContext&,
                         const FakeCluster::Writer<v1::LogChunk>& write) {
      v1::LogChunk chunk;
      if (request.stream() == v1::STDOUT)
        chunk.set_data(absl::StrCat("of ", request.job_id(), "\n"));
      chunk.set_end(true);
      write(chunk);
      return grpc::Status::OK;
    };
    cluster_.Start();
  }

  const v1::Job& Task(const std::string& id) const { return array_.tasks(id.back() - '0'); }

  absl::Status Print(const LogOptions& options) {
    ClusterClient::Options client_options;
    client_options.address = cluster_.address();
    ClusterClient client(client_options);
    Console console(out_, err_, {});
    Stopper stopper;
    return PrintArrayLogs(client, array_, options, stopper, console);
  }

  v1::GetArrayResponse array_;
  FakeCluster cluster_;
  std::ostringstream out_, err_;
};

TEST_F(ArrayLogsTest, PrefixesLinesWithTheTask) {
  EXPECT_EQ(Print({}), absl::OkStatus());
  EXPECT_EQ(out_.str(), "0| of sweep-0\n1| of sweep-1\n");
}

TEST_F(ArrayLogsTest, NamesTheTaskInObjects) {
  LogOptions options;
  options.style.form = LogForm::kJson;
  EXPECT_EQ(Print(options), absl::OkStatus());
  EXPECT_THAT(out_.str(), HasSubstr("\"task\":1"));
}

TEST_F(ArrayLogsTest, FollowsTasksTogether) {
  array_.mutable_tasks()->RemoveLast();
  LogOptions options;
  options.follow = true;
  EXPECT_EQ(Print(options), absl::OkStatus());
  EXPECT_THAT(out_.str(), HasSubstr("0| of sweep-0\n"));
  EXPECT_THAT(out_.str(), HasSubstr("1| of sweep-1\n"));
}

TEST_F(ArrayLogsTest, RejectsTooManyTasksToFollow) {
  while (array_.tasks_size() <= kFollowedTasks) array_.add_tasks();
  LogOptions options;
  options.follow = true;
  EXPECT_THAT(std::string(Print(options).message()), HasSubstr("cannot follow 65 tasks at once"));
}

}  // namespace
}  // namespace muster::cli
