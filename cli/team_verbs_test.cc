// The verbs for a cluster that several people use, against a fake coordinator: what they request,
// and their exit codes.
#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/fake_cluster.h"
#include "cli/program.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

grpc::Status NotFound(const std::string& what) {
  return grpc::Status(grpc::StatusCode::NOT_FOUND, "no " + what);
}

class TeamVerbsTest : public ::testing::Test {
 protected:
  // Runs a command line and returns its exit code.
  int Run(std::vector<std::string> words) {
    if (!started_) cluster_.Start();
    started_ = true;
    Console console(out_, err_, {});
    Context context(console);
    std::string config;
    const std::unique_ptr<Verb> program = MusterProgram(context, config);
    words.push_back("--coordinator=" + cluster_.address());
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    out_.str("");
    err_.str("");
    try {
      program->parse(std::move(words));
    } catch (const CLI::ParseError& error) {
      err_ << error.what();
      return 2;
    }
    return context.action();
  }

  FakeCluster cluster_;
  std::ostringstream out_, err_;

 private:
  bool started_ = false;
};

TEST_F(TeamVerbsTest, ListFiltersByOwnerAndCollapsesArraysInTables) {
  v1::ListJobsRequest seen;
  cluster_.on_list = [&](const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
    seen = request;
    if (request.collapse_arrays()) {
      response->add_arrays()->set_array_id("sweep-9qd3a");
      response->mutable_arrays(0)->set_count(12);
    } else {
      response->add_jobs()->set_job_id("sweep-9qd3a-0");
    }
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"list", "--mine"}), 0);
  EXPECT_TRUE(seen.mine());
  EXPECT_THAT(out_.str(), HasSubstr("sweep-9qd3a[12]"));
  EXPECT_THAT(out_.str(), HasSubstr("0/12 done"));
  EXPECT_EQ(Run({"list", "--user", "alice", "--tasks"}), 0);
  EXPECT_EQ(seen.owner(), "alice");
  EXPECT_FALSE(seen.collapse_arrays());
  EXPECT_EQ(Run({"list", "-o", "name"}), 0);
  EXPECT_EQ(out_.str(), "sweep-9qd3a-0\n");
  EXPECT_EQ(Run({"list", "--mine", "--user", "alice"}), 2);
}

TEST_F(TeamVerbsTest, ListAndQueueNoteWhatTheLimitLeavesOut) {
  cluster_.on_list = [](const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
    response->add_jobs()->set_job_id("train-x7k2");
    if (request.limit() > 0) response->set_next_page_token("more");
    return grpc::Status::OK;
  };
  cluster_.on_get_queue = [](const v1::GetQueueRequest& request, v1::GetQueueResponse* response) {
    response->add_jobs()->mutable_job()->set_job_id("train-x7k2");
    response->set_total(request.limit() > 0 ? 7 : 1);
    if (request.limit() > 0) response->set_next_page_token("more");
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"list", "--limit", "1", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_.str()).size(), 1u);
  EXPECT_EQ(err_.str(), "there are more than the newest 1; raise --limit to see them\n");
  EXPECT_EQ(Run({"list"}), 0);
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(Run({"list", "--limit", "0"}), 2);
  EXPECT_EQ(Run({"queue", "--limit", "1", "-o", "json"}), 0);
  EXPECT_FALSE(nlohmann::json::parse(out_.str()).contains("next_page_token"));
  EXPECT_EQ(err_.str(), "the first 1 of 7 queued jobs; raise --limit to see more\n");
  EXPECT_EQ(Run({"queue"}), 0);
  EXPECT_EQ(err_.str(), "");
}

TEST_F(TeamVerbsTest, CancelFallsBackToArrays) {
  v1::CancelArrayRequest seen;
  std::map<std::string, uint32_t> cancelled = {{"CANCELLED", 2}};
  cluster_.on_cancel = [](const v1::CancelJobRequest& request, v1::Job*) {
    return NotFound("job " + request.job_id());
  };
  cluster_.on_cancel_array = [&](const v1::CancelArrayRequest& request, v1::JobArray* array) {
    if (request.array_id() != "sweep") return NotFound("array");
    seen = request;
    array->set_array_id("sweep-9qd3a");
    array->set_state(cancelled.contains("STOPPING") ? v1::RUNNING : v1::CANCELLED);
    for (const auto& [state, count] : cancelled) {
      (*array->mutable_tasks())[state] = count;
      array->set_count(array->count() + count);
    }
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"cancel", "sweep", "--force"}), 0);
  EXPECT_EQ(out_.str(), "sweep-9qd3a cancelled, 2/2 done, 2 not successful\n");
  EXPECT_TRUE(seen.has_grace_period());
  cancelled = {{"CANCELLED", 3}, {"STOPPING", 5}};
  EXPECT_EQ(Run({"cancel", "sweep"}), 0);
  EXPECT_EQ(out_.str(), "sweep-9qd3a cancelling 5 tasks, 3/8 done, 3 not successful\n");
  EXPECT_EQ(Run({"cancel", "other"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("no job other"));
}

TEST_F(TeamVerbsTest, RerunRunsTasksOfArraysAgain) {
  const auto task = [](const std::string& id, v1::Job& job) {
    job.set_job_id(id);
    job.set_array_id("shard-9qd3a");
    job.set_array_index(id.back() - '0');
    job.set_array_count(3);
    job.set_state(id.back() == '0' ? v1::SUCCEEDED : id.back() == '1' ? v1::FAILED : v1::CANCELLED);
    job.mutable_spec()->set_name("shard");
    job.mutable_spec()->add_command("convert");
    job.mutable_spec()->add_command("{array_index}");
  };
  cluster_.on_get = [&](const v1::GetJobRequest& request, v1::Job* job) {
    if (request.job_id() == "shard-9qd3a") return NotFound("job");
    task(request.job_id(), *job);
    return grpc::Status::OK;
  };
  std::vector<std::string> states = {"0", "1", "2"};
  cluster_.on_get_array = [&](const v1::GetArrayRequest&, v1::GetArrayResponse* response) {
    response->mutable_array()->set_array_id("shard-9qd3a");
    for (const std::string& index : states) task("shard-9qd3a-" + index, *response->add_tasks());
    return grpc::Status::OK;
  };
  std::vector<v1::JobSpec> submitted;
  cluster_.on_submit = [&](const v1::SubmitJobRequest& request, v1::SubmitJobResponse* response) {
    submitted.push_back(request.spec());
    response->mutable_job()->set_job_id(absl::StrCat("shard-", submitted.size()));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"rerun", "shard-9qd3a-2", "-o", "name"}), 0);
  ASSERT_EQ(submitted.size(), 1u);
  EXPECT_THAT(submitted[0].command(), testing::ElementsAre("convert", "2"));
  EXPECT_EQ(submitted[0].env().at("MUSTER_ARRAY_INDEX"), "2");
  EXPECT_EQ(submitted[0].env().at("MUSTER_ARRAY_COUNT"), "3");
  submitted.clear();
  EXPECT_EQ(Run({"rerun", "shard-9qd3a", "--failed"}), 0);
  EXPECT_EQ(out_.str(), "shard-1\nshard-2\n");
  ASSERT_EQ(submitted.size(), 2u);
  EXPECT_EQ(submitted[0].command(1), "1");
  EXPECT_EQ(submitted[1].command(1), "2");
  EXPECT_EQ(Run({"rerun", "shard-9qd3a", "--failed", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_.str()).size(), 2u);
  EXPECT_EQ(Run({"rerun", "shard-9qd3a"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("muster rerun shard-9qd3a --failed"));
  states = {"0"};
  EXPECT_EQ(Run({"rerun", "shard-9qd3a", "--failed"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("no task of shard-9qd3a has ended without success"));
}

TEST_F(TeamVerbsTest, DescribeAndGetShowArrays) {
  cluster_.on_get = [](const v1::GetJobRequest&, v1::Job*) { return NotFound("job"); };
  cluster_.on_get_array = [](const v1::GetArrayRequest&, v1::GetArrayResponse* response) {
    response->mutable_array()->set_array_id("sweep-9qd3a");
    response->mutable_array()->set_count(1);
    response->add_tasks()->set_job_id("sweep-9qd3a-0");
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"describe", "sweep"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("INDEX  STATE"));
  EXPECT_EQ(Run({"describe", "sweep", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["tasks"][0]["job_id"], "sweep-9qd3a-0");
  EXPECT_EQ(Run({"get", "sweep", "-o", "name"}), 0);
  EXPECT_EQ(out_.str(), "sweep-9qd3a\n");
  EXPECT_EQ(Run({"get", "sweep"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("sweep-9qd3a[1]"));
}

TEST_F(TeamVerbsTest, DryRunPrintsTheForecast) {
  cluster_.on_submit = [](const v1::SubmitJobRequest& request, v1::SubmitJobResponse* response) {
    EXPECT_TRUE(request.validate_only());
    *response->mutable_job()->mutable_spec() = request.spec();
    response->mutable_forecast()->set_starts_now(true);
    response->mutable_forecast()->add_nodes("node-1");
    return grpc::Status::OK;
  };
  const std::string spec = ::testing::TempDir() + "/team.yaml";
  std::ofstream(spec) << "name: team\ncommand: [/bin/true]\n";
  EXPECT_EQ(Run({"submit", spec, "--dry-run", "--class", "high"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("priority_class: high"));
  EXPECT_EQ(err_.str(), "would start now on node-1\n");
  EXPECT_EQ(Run({"submit", spec, "--dry-run", "--class", "urgent"}), 2);
  cluster_.on_submit = [](const v1::SubmitJobRequest&, v1::SubmitJobResponse*) {
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the jobs of alice use 9 bytes");
  };
  EXPECT_EQ(Run({"submit", spec, "--dry-run"}), 75);
  EXPECT_THAT(err_.str(), HasSubstr("the jobs of alice use 9 bytes"));
}

TEST_F(TeamVerbsTest, QueueAndReportPrintEveryFormat) {
  cluster_.on_get_queue = [](const v1::GetQueueRequest&, v1::GetQueueResponse* response) {
    response->add_jobs()->mutable_job()->set_job_id("train-x7k2");
    response->add_owners()->set_owner("alice");
    return grpc::Status::OK;
  };
  cluster_.on_get_report = [](const v1::GetReportRequest& request,
                              v1::GetReportResponse* response) {
    EXPECT_EQ(request.days(), 30u);
    response->add_owners()->set_owner("alice");
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"queue"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("train-x7k2"));
  EXPECT_THAT(out_.str(), HasSubstr("RUNNING SLOTS"));
  EXPECT_EQ(Run({"queue", "-o", "name"}), 0);
  EXPECT_EQ(out_.str(), "train-x7k2\n");
  EXPECT_EQ(Run({"queue", "-o", "json"}), 0);
  EXPECT_EQ(nlohmann::json::parse(out_.str())["owners"][0]["owner"], "alice");
  EXPECT_EQ(Run({"report", "--days", "30"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("alice"));
  EXPECT_EQ(Run({"report", "--days", "0"}), 2);
}

TEST_F(TeamVerbsTest, SecretsAreReadFromFilesAndNeverPrinted) {
  v1::SetSecretRequest seen;
  cluster_.on_set_secret = [&](const v1::SetSecretRequest& request) {
    seen = request;
    return grpc::Status::OK;
  };
  const std::string file = ::testing::TempDir() + "/secret";
  std::ofstream(file) << "hunter2\n";
  EXPECT_EQ(Run({"secret", "set", "wandb", "--file", file}), 0);
  EXPECT_EQ(seen.name(), "wandb");
  EXPECT_EQ(seen.value(), "hunter2");
  EXPECT_THAT(absl::StrCat(out_.str(), err_.str()), Not(HasSubstr("hunter2")));
  EXPECT_EQ(Run({"secret", "rm", "wandb"}), 0);
  EXPECT_EQ(seen.value(), "");
  std::ofstream(file).close();
  EXPECT_EQ(Run({"secret", "set", "wandb", "--file", file}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("the value of wandb is empty"));
  EXPECT_EQ(Run({"secret", "set", "wandb", "--file", file + "-missing"}), 66);
  EXPECT_EQ(Run({"secret", "set", "wandb", "hunter2"}), 2);
}

TEST_F(TeamVerbsTest, TopPrintsOnceWithoutATerminal) {
  cluster_.on_list = [](const v1::ListJobsRequest&, v1::ListJobsResponse* response) {
    for (const auto state : {v1::RUNNING, v1::QUEUED}) {
      response->add_jobs()->set_job_id("train-x7k2");
      response->mutable_jobs(response->jobs_size() - 1)->set_state(state);
    }
    return grpc::Status::OK;
  };
  cluster_.on_get = [](const v1::GetJobRequest& request, v1::Job* job) {
    job->set_job_id(request.job_id());
    job->set_state(v1::RUNNING);
    job->add_ranks()->set_node("node-1");
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"top"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("1 active job, 1 rank, 1 queued\n"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("\x1b")));
  EXPECT_EQ(Run({"top", "-o", "name"}), 0);
  EXPECT_EQ(out_.str(), "train-x7k2\n");
}

TEST_F(TeamVerbsTest, NodeTestWaitsForItsEndAndFailsWithTheChecks) {
  bool disk_full = false;
  const auto tested = [&](v1::Node* node) {
    node->set_name("node-1");
    v1::SelfTest::Check& check = *node->mutable_self_test()->add_checks();
    check.set_name("disk");
    if (disk_full) check.set_failure("0 bytes free");
    return grpc::Status::OK;
  };
  cluster_.on_test_node = [](const v1::TestNodeRequest&, v1::Node* node) {
    node->mutable_self_test()->set_running(true);
    return grpc::Status::OK;
  };
  cluster_.on_get_node = [&](const v1::GetNodeRequest&, v1::Node* node) { return tested(node); };
  EXPECT_EQ(Run({"node", "test", "node-1"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("node-1: self-test succeeded"));
  disk_full = true;
  EXPECT_EQ(Run({"node", "test", "node-1"}), 1);
  EXPECT_THAT(out_.str(), HasSubstr("disk: 0 bytes free"));
}

TEST_F(TeamVerbsTest, DrainPassesItsDeadline) {
  v1::DrainNodeRequest seen;
  cluster_.on_drain = [&](const v1::DrainNodeRequest& request, v1::Node* node) {
    seen = request;
    node->set_name(request.name());
    return grpc::Status::OK;
  };
  EXPECT_EQ(Run({"node", "drain", "node-1", "--deadline", "2m", "--reason", "kernel"}), 0);
  EXPECT_EQ(FromProto(seen.deadline()), absl::Minutes(2));
  EXPECT_EQ(seen.reason(), "kernel");
  EXPECT_EQ(Run({"node", "drain", "node-1"}), 0);
  EXPECT_FALSE(seen.has_deadline());
}

}  // namespace
}  // namespace muster::cli
