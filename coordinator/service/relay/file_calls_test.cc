// Files over gRPC: upload by a client, references by jobs, download by a worker.
#include "coordinator/service/relay/file_calls.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/sha256.h"
#include "common/time/now.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"

namespace muster::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileCallsTest : public CoordinatorFixture {
 protected:
  using CoordinatorFixture::StartCoordinator;
  // Replaces the coordinator.
  void StartCoordinator(const CoordinatorOptions& options) {
    StopCoordinator();
    auto coordinator = Coordinator::Start(options, store_);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
    channel_ = grpc::CreateChannel(coordinator_->grpc_address().ToString(),
                                   grpc::InsecureChannelCredentials());
    cluster_ = v1::ClusterService::NewStub(channel_);
  }
  // Uploads `content` in messages of `chunk` bytes; the first announces `digest` and `size_bytes`.
  grpc::Status Upload(const std::string& content, const std::string& digest, uint64_t size_bytes,
                      size_t chunk = limits::kLogChunkBytes) {
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    v1::UploadFileResponse response;
    const auto writer = cluster_->UploadFile(&context, &response);
    v1::UploadFileRequest request;
    request.set_sha256(digest);
    request.set_size_bytes(size_bytes);
    size_t sent = 0;
    do {
      request.set_data(content.substr(sent, chunk));
      sent += request.data().size();
      if (!writer->Write(request)) break;
      request.Clear();
    } while (sent < content.size());
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status Upload(const std::string& content) {
    return Upload(content, Sha256Hex(content), content.size());
  }

  // The content, or the error.
  std::string Fetch(const std::string& digest) {
    const auto stub = v1::WorkerService::NewStub(channel_);
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    v1::FetchFileRequest request;
    request.set_sha256(digest);
    const auto reader = stub->FetchFile(&context, request);
    std::string content;
    v1::FetchFileResponse response;
    while (reader->Read(&response)) content += response.data();
    const grpc::Status status = reader->Finish();
    return status.ok() ? content : absl::StrCat("error: ", status.error_message());
  }

  static std::string NotStored(const std::string& content) {
    return absl::StrCat("error: no file with SHA-256 ", Sha256Hex(content), " is stored");
  }
  bool IsStored(const std::string& content) {
    v1::FindMissingFilesRequest request;
    request.add_sha256(Sha256Hex(content));
    v1::FindMissingFilesResponse response;
    EXPECT_TRUE(
        Call(*cluster_, &v1::ClusterService::Stub::FindMissingFiles, request, &response).ok());
    return response.sha256().empty();
  }

  grpc::Status SubmitWith(const std::string& path, const std::string& digest, uint64_t size_bytes,
                          bool validate_only = false) {
    v1::SubmitJobRequest request = SubmitRequest("with-files");
    request.set_validate_only(validate_only);
    v1::FileSpec& file = *request.mutable_spec()->add_files();
    file.set_path(path);
    file.set_sha256(digest);
    file.set_size_bytes(size_bytes);
    v1::SubmitJobResponse response;
    return Call(*cluster_, &v1::ClusterService::Stub::SubmitJob, request, &response);
  }
};

// The fixture's workers have no certificates: they fetch the files of all running jobs.
TEST_F(FileCallsTest, WorkerFetchesTheFilesOfRunningJobs) {
  for (const size_t size : {size_t{0}, size_t{1}, limits::kLogChunkBytes, size_t{1} << 20}) {
    const std::string content(size, 'x');
    ASSERT_TRUE(Upload(content).ok()) << size;
    ASSERT_TRUE(SubmitWith("file", Sha256Hex(content), size).ok()) << size;
    EXPECT_EQ(Fetch(Sha256Hex(content)), NotStored(content)) << size << ", in a queued job";
    const auto worker = Connect(absl::StrCat("node-", size));
    worker->Next(v1::CoordinatorMessage::kLaunch);
    EXPECT_EQ(Fetch(Sha256Hex(content)), content) << size;
  }
  EXPECT_EQ(Fetch(Sha256Hex("other")), NotStored("other"));
  EXPECT_THAT(Fetch("../../etc/passwd"), HasSubstr("not a SHA-256 digest"));
}

TEST_F(FileCallsTest, FindsMissingFiles) {
  ASSERT_TRUE(Upload("there").ok());
  v1::FindMissingFilesRequest request;
  request.add_sha256(Sha256Hex("there"));
  request.add_sha256(Sha256Hex("missing"));
  v1::FindMissingFilesResponse response;
  ASSERT_TRUE(
      Call(*cluster_, &v1::ClusterService::Stub::FindMissingFiles, request, &response).ok());
  EXPECT_THAT(response.sha256(), ElementsAre(Sha256Hex("missing")));

  request.add_sha256("../x");
  EXPECT_EQ(
      Call(*cluster_, &v1::ClusterService::Stub::FindMissingFiles, request, &response).error_code(),
      grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(FileCallsTest, RejectsBadUploads) {
  EXPECT_EQ(Upload("abc", Sha256Hex("abd"), 3).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload("abc", Sha256Hex("abc"), 4).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload("abc", Sha256Hex("abc"), 2).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload("abc", "abc", 3).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload("abc", Sha256Hex("abc"), limits::kFilesBytes + 1).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  const std::string large(limits::kLogChunkBytes + 1, 'x');
  EXPECT_THAT(Upload(large, Sha256Hex(large), large.size(), large.size()).error_message(),
              HasSubstr("the limit is 65536"));

  grpc::ClientContext context;
  v1::UploadFileResponse response;
  const auto writer = cluster_->UploadFile(&context, &response);
  writer->WritesDone();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(IsStored("abc"));
}

TEST_F(FileCallsTest, SubmissionNeedsItsFiles) {
  grpc::Status status = SubmitWith("train.py", Sha256Hex("abc"), 3);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("train.py has not been uploaded"));
  // A dry run uploads nothing.
  EXPECT_TRUE(SubmitWith("train.py", Sha256Hex("abc"), 3, /*validate_only=*/true).ok());

  ASSERT_TRUE(Upload("abc").ok());
  EXPECT_TRUE(SubmitWith("train.py", Sha256Hex("abc"), 3).ok());
  EXPECT_THAT(SubmitWith("train.py", Sha256Hex("abc"), 2).error_message(),
              HasSubstr("has 3 bytes, not 2"));
  for (const bool validate_only : {false, true}) {
    status = SubmitWith("../train.py", Sha256Hex("abc"), 3, validate_only);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("'../train.py' is not a relative path"));
  }
  EXPECT_EQ(SubmitWith("train.py", "", 3).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// At a start and then periodically; recorded jobs keep their files across restarts.
TEST_F(FileCallsTest, RemovesFilesThatNoJobReferences) {
  std::atomic<int> hours = 0;
  CoordinatorOptions options;
  options.listen = options.http = "127.0.0.1:0";
  options.access.require_token = false;
  options.files_dir = ::testing::TempDir() + "collected-files";
  options.clock = [&hours] {
    Time now = Now();
    now.steady = now.steady + absl::Hours(hours.load());
    now.wall += absl::Hours(hours.load());
    return now;
  };
  const auto start = [&] { StartCoordinator(options); };
  const auto has = [this](const std::string& content) { return IsStored(content); };
  start();
  for (const char* content : {"used", "unused"}) ASSERT_TRUE(Upload(content).ok());
  ASSERT_TRUE(SubmitWith("train.py", Sha256Hex("used"), 4).ok());
  hours = 2;
  coordinator_->Wake();
  AwaitCondition([&] { return !has("unused"); });
  EXPECT_TRUE(has("used"));

  ASSERT_TRUE(Upload("unused").ok());
  hours = 4;
  start();
  AwaitCondition([&] { return !has("unused"); });
  EXPECT_TRUE(has("used"));
  StopCoordinator();
}

struct OpenUpload {
  explicit OpenUpload(v1::ClusterService::Stub& cluster)
      : writer(cluster.UploadFile(&context, &response)) {}
  grpc::ClientContext context;
  v1::UploadFileResponse response;
  std::unique_ptr<grpc::ClientWriter<v1::UploadFileRequest>> writer;
};

TEST_F(FileCallsTest, LimitsUploadsOfOneCaller) {
  std::vector<std::unique_ptr<OpenUpload>> uploads;
  std::string refusal;
  AwaitCondition([&] {
    // The coordinator may refuse one of these, because it has not finished an earlier "abc" yet.
    if (uploads.size() < 2 * limits::kUploadsPerCaller) {
      uploads.push_back(std::make_unique<OpenUpload>(*cluster_));
    }
    refusal = Upload("abc").error_message();
    return !refusal.empty();
  });
  EXPECT_THAT(refusal, HasSubstr("has 16 open uploads, the limit for one caller"));
  for (const auto& upload : uploads) upload->context.TryCancel();
  AwaitCondition([&] { return Upload("abc").ok(); });
}

// Jobs that have been submitted since free the space.
TEST_F(FileCallsTest, LimitsUnusedFilesOfOneOwner) {
  std::atomic<int> seconds = 0;
  CoordinatorOptions options;
  options.listen = options.http = "127.0.0.1:0";
  options.access.require_token = false;
  options.files_dir = ::testing::TempDir() + "unused-files";
  options.clock = [&seconds] {
    Time now = Now();
    now.steady = now.steady + absl::Seconds(seconds.load());
    return now;
  };
  StartCoordinator(options);
  const std::vector<std::string> contents = {"a", "b", "c", "d"};
  for (const std::string& content : contents) {
    ASSERT_TRUE(Upload(content).ok());
    const std::string digest = Sha256Hex(content);
    std::filesystem::resize_file(  // sparse
        absl::StrCat(options.files_dir, "/", digest.substr(0, 2), "/", digest),
        limits::kFilesBytes);
  }
  StartCoordinator(options);
  const auto submit = [&](const std::string& content, bool validate_only) {
    return SubmitWith("file", Sha256Hex(content), content == "more" ? 4 : limits::kFilesBytes,
                      validate_only);
  };
  const grpc::Status refused = Upload("more");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("has 1048576 KiB of uploaded files that no job of that owner uses"));
  EXPECT_EQ(submit("more", /*validate_only=*/true).error_message(), refused.error_message());
  EXPECT_TRUE(submit("a", /*validate_only=*/true).ok());

  ASSERT_TRUE(submit("a", /*validate_only=*/false).ok());
  seconds = 2;
  EXPECT_TRUE(submit("more", /*validate_only=*/true).ok());
  EXPECT_TRUE(Upload("more").ok());
  StopCoordinator();
}

TEST_F(FileCallsTest, EndsStalledUploads) {
  std::atomic<int> seconds = 0;
  CoordinatorOptions options;
  options.listen = options.http = "127.0.0.1:0";
  options.access.require_token = false;
  options.clock = [&seconds] {
    Time now = Now();
    now.steady = now.steady + absl::Seconds(seconds.load());
    return now;
  };
  StartCoordinator(options);
  OpenUpload silent(*cluster_);
  OpenUpload begun(*cluster_);
  v1::UploadFileRequest request;
  request.set_sha256(Sha256Hex("abc"));
  request.set_size_bytes(3);
  request.set_data("ab");
  ASSERT_TRUE(begun.writer->Write(request));
  for (OpenUpload* const upload : {&silent, &begun}) {
    std::atomic<bool> ended = false;
    grpc::Status status;
    std::thread finish([&] {
      status = upload->writer->Finish();
      ended = true;
    });
    AwaitCondition([&] {
      seconds += 31;
      coordinator_->Wake();
      return ended.load();
    });
    upload->context.TryCancel();  // or a failed test would wait for it
    finish.join();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_EQ(status.error_message(), "the upload received nothing for 30s; try again");
  }
  EXPECT_TRUE(Upload("abc").ok());
  StopCoordinator();
}

TEST_F(FileCallsTest, AbandonedUploadLeavesNothing) {
  {
    grpc::ClientContext context;
    v1::UploadFileResponse response;
    const auto writer = cluster_->UploadFile(&context, &response);
    v1::UploadFileRequest request;
    request.set_sha256(Sha256Hex("abc"));
    request.set_size_bytes(3);
    request.set_data("ab");
    ASSERT_TRUE(writer->Write(request));
    context.TryCancel();
    EXPECT_FALSE(writer->Finish().ok());
  }
  EXPECT_FALSE(IsStored("abc"));
  EXPECT_TRUE(Upload("abc").ok());
  EXPECT_TRUE(IsStored("abc"));
}

}  // namespace
}  // namespace muster::service
