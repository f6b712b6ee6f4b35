// Lists that do not fit into one response, over the network.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "coordinator/core/records.h"
#include "coordinator/service/calls/page.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"
#include "proto/muster/v1/identity.grpc.pb.h"

namespace muster::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Stub = v1::ClusterService::Stub;

class PagesTest : public CoordinatorFixture {
 protected:
  void SetUp() override { writes_ = {core::PutSchema()}; }
  void Start() {
    ASSERT_TRUE(store_.Commit(writes_).ok());
    StartCoordinator();
  }
  // Adds the record of a job in this state, as the newest one.
  void AddJob(v1::StoredState state, const std::function<void(v1::JobRecord&)>& fill) {
    v1::JobRecord record;
    record.set_job_id(absl::StrCat("job-", ++jobs_));
    record.set_state(state);
    record.set_queue_sequence(jobs_);
    fill(record);
    writes_.push_back(core::Put(record));
  }
  // Gives the job of the record this spec.
  void SetSpec(const v1::JobSpec& spec, v1::JobRecord& record) {
    v1::SubmittedSpec submitted;
    submitted.set_spec(spec.SerializeAsString());
    record.set_spec_parts(
        core::PutParts<v1::SpecRecord>(record.job_id(), submitted.SerializeAsString(), writes_));
  }
  // Reads all pages of a list; `read` adds the page's items to `ids_`.
  template <typename Request, typename Response>
  void ReadPages(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                 Request request, const std::function<void(const Response&)>& read) {
    ids_.clear();
    pages_.clear();
    do {
      Response response;
      const grpc::Status status = Call(*cluster_, method, request, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_LT(response.ByteSizeLong(), kPageBytes + (64 << 10));
      const size_t before = ids_.size();
      read(response);
      pages_.push_back(ids_.size() - before);
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
  }
  void ListJobs(const v1::ListJobsRequest& request) {
    ReadPages<v1::ListJobsRequest, v1::ListJobsResponse>(
        &Stub::ListJobs, request, [this](const v1::ListJobsResponse& response) {
          for (const v1::Job& job : response.jobs()) ids_.push_back(job.job_id());
          for (const v1::JobArray& array : response.arrays()) ids_.push_back(array.array_id());
        });
  }

  std::vector<store::Mutation> writes_;
  int jobs_ = 0;
  std::vector<std::string> ids_;
  std::vector<size_t> pages_;  // number of items of each
};

TEST_F(PagesTest, JobsComeNewestFirst) {
  for (int i = 0; i < 5; ++i) AddJob(v1::STORED_HELD, [](v1::JobRecord&) {});
  Start();
  v1::ListJobsRequest request;
  request.set_limit(2);
  ListJobs(request);
  EXPECT_THAT(ids_, ElementsAre("job-5", "job-4", "job-3", "job-2", "job-1"));
  EXPECT_THAT(pages_, ElementsAre(2u, 2u, 1u));
  v1::ListJobsResponse first, second;
  ASSERT_TRUE(Call(*cluster_, &Stub::ListJobs, request, &first).ok());
  Submit("newer");
  request.set_page_token(first.next_page_token());
  ASSERT_TRUE(Call(*cluster_, &Stub::ListJobs, request, &second).ok());
  EXPECT_EQ(second.jobs(0).job_id(), "job-3");
}

TEST_F(PagesTest, LargeSpecsHideNoJobs) {
  constexpr int kJobs = 40;
  for (int i = 0; i < kJobs; ++i) {
    AddJob(v1::STORED_HELD, [this](v1::JobRecord& record) {
      v1::JobSpec spec;
      spec.set_name("large");
      (*spec.mutable_env())["X"] = std::string(900'000, 'x');
      spec.add_command("true");
      spec.mutable_resources()->mutable_nodes()->set_max(3);
      SetSpec(spec, record);
    });
  }
  Start();
  ListJobs({});
  EXPECT_THAT(pages_, ElementsAre(kJobs)) << "a list has no environment";
  v1::ListJobsResponse response;
  ASSERT_TRUE(Call(*cluster_, &Stub::ListJobs, v1::ListJobsRequest(), &response).ok());
  EXPECT_EQ(response.jobs(0).spec().name(), "large");
  EXPECT_EQ(response.jobs(0).spec().resources().nodes().max(), 3u);
}

TEST_F(PagesTest, ArraysAndJobsShareThePages) {
  constexpr int kTasks = 6000;
  for (const std::string array : {"a", "b"}) {
    for (int i = 0; i < kTasks; ++i) {
      AddJob(v1::STORED_HELD, [&](v1::JobRecord& record) {
        record.set_job_id(absl::StrCat(array, "-", i));
        record.set_array_id(array);
        record.set_array_index(i);
        record.set_array_count(kTasks);
        record.set_message(std::string(1000, 'm'));
      });
    }
    AddJob(v1::STORED_HELD, [](v1::JobRecord&) {});
  }
  Start();
  v1::ListJobsRequest request;
  ListJobs(request);
  EXPECT_EQ(std::set<std::string>(ids_.begin(), ids_.end()).size(), 2u * kTasks + 2);
  EXPECT_THAT(ids_, SizeIs(2 * kTasks + 2));
  request.set_collapse_arrays(true);
  request.set_limit(1);
  ListJobs(request);
  EXPECT_THAT(ids_, ElementsAre(absl::StrCat("job-", 2 * kTasks + 2), "b",
                                absl::StrCat("job-", kTasks + 1), "a"));
  v1::GetArrayRequest array;
  array.set_array_id("a");
  ReadPages<v1::GetArrayRequest, v1::GetArrayResponse>(
      &Stub::GetArray, array, [this](const v1::GetArrayResponse& response) {
        EXPECT_EQ(response.array().count(), uint32_t{kTasks});
        for (const v1::Job& task : response.tasks()) ids_.push_back(task.job_id());
      });
  EXPECT_GT(pages_.size(), 2u);
  ASSERT_THAT(ids_, SizeIs(kTasks));
  for (int i = 0; i < kTasks; ++i) EXPECT_EQ(ids_[i], absl::StrCat("a-", i));
}

TEST_F(PagesTest, QueueContinuesAfterTheLastJob) {
  for (int i = 0; i < 5; ++i) {
    AddJob(v1::STORED_QUEUED, [this](v1::JobRecord& record) {
      v1::JobSpec spec;
      spec.add_command("true");
      spec.mutable_resources()->mutable_nodes()->set_min(1);
      spec.mutable_resources()->mutable_nodes()->set_max(1);
      SetSpec(spec, record);
    });
  }
  Start();
  v1::GetQueueRequest request;
  request.set_limit(2);
  const auto read = [this](const v1::GetQueueResponse& response) {
    EXPECT_EQ(response.total(), 5u);
    for (const v1::QueuedJob& job : response.jobs()) ids_.push_back(job.job().job_id());
  };
  ReadPages<v1::GetQueueRequest, v1::GetQueueResponse>(&Stub::GetQueue, request, read);
  EXPECT_THAT(ids_, ElementsAre("job-1", "job-2", "job-3", "job-4", "job-5"));
  EXPECT_THAT(pages_, ElementsAre(2u, 2u, 1u));
  v1::GetQueueResponse first, second;
  ASSERT_TRUE(Call(*cluster_, &Stub::GetQueue, request, &first).ok());
  v1::CancelJobRequest cancel;
  cancel.set_job_id("job-1");
  v1::Job cancelled;
  ASSERT_TRUE(Call(*cluster_, &Stub::CancelJob, cancel, &cancelled).ok());
  request.set_page_token(first.next_page_token());
  ASSERT_TRUE(Call(*cluster_, &Stub::GetQueue, request, &second).ok());
  EXPECT_EQ(second.jobs(0).job().job_id(), "job-3");
}

TEST_F(PagesTest, NodesComeInNaturalOrder) {
  constexpr int kNodes = 12000;
  for (int i = 1; i <= kNodes; ++i) {
    v1::NodeRecord record;
    record.set_name(absl::StrCat("node-", i));
    record.set_cordoned(true);
    record.set_cordon_reason(std::string(limits::kCordonReasonBytes, 'r'));
    writes_.push_back(core::Put(record));
  }
  Start();
  ReadPages<v1::ListNodesRequest, v1::ListNodesResponse>(
      &Stub::ListNodes, {}, [this](const v1::ListNodesResponse& response) {
        for (const v1::Node& node : response.nodes()) ids_.push_back(node.name());
      });
  EXPECT_GT(pages_.size(), 1u);
  ASSERT_THAT(ids_, SizeIs(kNodes));
  for (int i = 0; i < kNodes; ++i) EXPECT_EQ(ids_[i], absl::StrCat("node-", i + 1));
}

TEST_F(PagesTest, EventsContinueAfterASequenceNumber) {
  constexpr uint64_t kEvents = 1000;
  AddJob(v1::STORED_HELD,
         [](v1::JobRecord& record) { record.set_next_event_sequence(kEvents + 1); });
  for (uint64_t i = 1; i <= kEvents; ++i) {
    v1::EventRecord record;
    record.mutable_event()->set_job_id("job-1");
    record.mutable_event()->set_sequence(i);
    record.mutable_event()->set_message(std::string(limits::kReportedTextBytes, 'e'));
    writes_.push_back(core::Put(record));
  }
  Start();
  v1::ListEventsRequest request;
  request.set_job_id("job-1");
  uint64_t read = 0;
  int pages = 0;
  for (bool more = true; more; ++pages) {
    v1::ListEventsResponse response;
    ASSERT_TRUE(Call(*cluster_, &Stub::ListEvents, request, &response).ok());
    for (const v1::JobEvent& event : response.events()) ASSERT_EQ(event.sequence(), ++read);
    request.set_after_sequence(read);
    more = response.more();
  }
  EXPECT_EQ(read, kEvents);
  EXPECT_GT(pages, 2);
}

TEST_F(PagesTest, EveryListRejectsTokensOfOthers) {
  AddJob(v1::STORED_HELD, [](v1::JobRecord& record) {
    record.set_job_id("a-0");
    record.set_array_id("a");
    record.set_array_count(1);
  });
  Start();
  const std::unique_ptr<v1::IdentityService::Stub> identity =
      v1::IdentityService::NewStub(channel_);
  std::vector<grpc::Status> answers;
  const auto call = [&](auto& stub, auto method, auto request, auto response) {
    EXPECT_TRUE(Call(stub, method, request, &response).ok());
    EXPECT_EQ(response.next_page_token(), "");
    request.set_page_token("x");
    answers.push_back(Call(stub, method, request, &response));
  };
  v1::GetArrayRequest array;
  array.set_array_id("a");
  call(*cluster_, &Stub::ListJobs, v1::ListJobsRequest(), v1::ListJobsResponse());
  call(*cluster_, &Stub::GetArray, array, v1::GetArrayResponse());
  call(*cluster_, &Stub::GetQueue, v1::GetQueueRequest(), v1::GetQueueResponse());
  call(*cluster_, &Stub::GetReport, v1::GetReportRequest(), v1::GetReportResponse());
  call(*cluster_, &Stub::ListSecrets, v1::ListSecretsRequest(), v1::ListSecretsResponse());
  call(*cluster_, &Stub::ListNodes, v1::ListNodesRequest(), v1::ListNodesResponse());
  call(*identity, &v1::IdentityService::Stub::ListJoinTokens, v1::ListJoinTokensRequest(),
       v1::ListJoinTokensResponse());
  for (const grpc::Status& answer : answers) {
    EXPECT_EQ(answer.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(answer.error_message(), HasSubstr("is not a token of this list"));
  }
}

}  // namespace
}  // namespace muster::service
