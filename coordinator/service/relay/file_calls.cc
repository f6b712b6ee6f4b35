#include "coordinator/service/relay/file_calls.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/grpc/status.h"
#include "common/limits.h"
#include "common/status.h"
#include "spec/files.h"

namespace muster::service {
namespace {

// Minimum time between two counts of files, which look at all jobs and all files.
constexpr absl::Duration kCountInterval = absl::Seconds(1);

absl::Status CheckDigest(const std::string& digest) {
  if (spec::IsSha256(digest)) return absl::OkStatus();
  return absl::InvalidArgumentError("sha256 is not a SHA-256 digest of 64 hexadecimal digits");
}

}  // namespace

// Used on the file thread, and by gRPC, which reads or has a task there that handles what it read.
class UploadFileCall final : public grpc::ServerReadReactor<v1::UploadFileRequest> {
 public:
  UploadFileCall(FileAccess& files, CoreLoop& loop, absl::StatusOr<AdmittedCaller> uploader)
      : files_(files),
        loop_(loop),
        uploader_(std::move(uploader)),
        received_(files.clock().steady) {
    files_.thread.Post([this] { files_.uploads.insert(this); });
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    files_.thread.Post([this, ok] { ok ? Take() : End(); });
  }
  // After the tasks that use it.
  void OnDone() override {
    files_.thread.Post([this] {
      files_.uploads.erase(this);
      delete this;
    });
  }

  void EndIfStalled(SteadyTime now) {
    if (now - received_ < kUploadTimeout) return;
    Finish(absl::DeadlineExceededError(absl::StrCat(
        "the upload received nothing for ", absl::FormatDuration(kUploadTimeout), "; try again")));
  }

 private:
  void Take() {
    received_ = files_.clock().steady;
    const absl::Status status = Store();
    if (status.ok()) return StartRead(&incoming_);
    if (upload_ != nullptr || !absl::IsResourceExhausted(status)) return Finish(status);
    // Jobs may use the owner's files by now.
    received_ = SteadyTime::Infinite();  // the call does not wait for the client
    Recount(files_, loop_, [this, status](bool counted) { counted ? Take() : Finish(status); });
  }

  absl::Status Store() {
    if (upload_ == nullptr) {
      RETURN_IF_ERROR(uploader_.status());
      RETURN_IF_ERROR(CheckDigest(incoming_.sha256()));
      ASSIGN_OR_RETURN(upload_, files_.store->StartUpload(uploader_->actor.name, incoming_.sha256(),
                                                          incoming_.size_bytes()));
    }
    if (incoming_.data().size() > limits::kLogChunkBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a message has ", incoming_.data().size(),
                                                     " bytes of data; the limit is ",
                                                     limits::kLogChunkBytes));
    }
    return upload_->Append(incoming_.data());
  }

  // The client has sent everything, or has disconnected: then the content is incomplete.
  void End() {
    Finish(upload_ == nullptr ? absl::InvalidArgumentError("the stream has no message")
                              : upload_->Finish(files_.clock().wall));
  }

  void Finish(const absl::Status& status) {
    if (finished_) return;  // as stalled
    finished_ = true;
    // Destroyed here, because the store must be used on the file thread.
    upload_.reset();
    uploader_ = absl::CancelledError();  // no longer counted
    ServerReadReactor::Finish(ToGrpcStatus(status));
  }

  FileAccess& files_;
  CoreLoop& loop_;
  absl::StatusOr<AdmittedCaller> uploader_;
  v1::UploadFileRequest incoming_;
  std::unique_ptr<files::FileStore::Upload> upload_;
  SteadyTime received_;  // the newest message
  bool finished_ = false;
};

namespace {

// At any time, either a write is in progress or one task on the file thread.
class FetchFileCall final : public grpc::ServerWriteReactor<v1::FetchFileResponse> {
 public:
  FetchFileCall(FileAccess& files, CoreLoop& loop, std::optional<NodeName> node, std::string digest)
      : files_(files), digest_(std::move(digest)) {
    const bool queued = loop.PushQuery([=, this](core::Core& core, const Time&) -> Release {
      const bool needed = core.NeedsFile(node, digest_);
      return [this, needed] { files_.thread.Post([this, needed] { Open(needed); }); };
    });
    if (!queued) End(absl::UnavailableError("the coordinator is shutting down"));
  }

  void OnWriteDone(bool ok) override {
    files_.thread.Post(
        [this, ok] { ok ? Send() : End(absl::CancelledError("the worker has disconnected")); });
  }
  void OnDone() override { delete this; }

 private:
  void Open(bool needed) {
    absl::Status status = CheckDigest(digest_);
    if (!status.ok()) return End(status);
    // The error of FileStore::Read.
    absl::StatusOr<std::unique_ptr<files::FileReader>> reader =
        absl::NotFoundError(absl::StrCat("no file with SHA-256 ", digest_, " is stored"));
    if (needed) reader = files_.store->Read(digest_);
    if (!reader.ok()) return End(reader.status());
    reader_ = *std::move(reader);
    Send();
  }

  void Send() {
    absl::StatusOr<std::string> data = reader_->Read(limits::kLogChunkBytes);
    if (!data.ok() || data->empty()) return End(data.status());
    outgoing_.set_data(*std::move(data));
    StartWrite(&outgoing_);
  }

  void End(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

  FileAccess& files_;
  const std::string digest_;
  std::unique_ptr<files::FileReader> reader_;
  v1::FetchFileResponse outgoing_;
};

}  // namespace

grpc::ServerReadReactor<v1::UploadFileRequest>* StartUploadFile(
    FileAccess& files, CoreLoop& loop, absl::StatusOr<AdmittedCaller> uploader) {
  return new UploadFileCall(files, loop, std::move(uploader));
}

void Recount(FileAccess& files, CoreLoop& loop, absl::AnyInvocable<void(bool)> then) {
  if (files.clock().steady - files.counted < kCountInterval) return then(false);
  const auto shared = std::make_shared<absl::AnyInvocable<void(bool)>>(std::move(then));
  const bool queued = loop.PushQuery([&files, shared](core::Core& core, const Time&) -> Release {
    return [&files, shared, of_jobs = core.ListFiles()] {
      files.thread.Post([&files, shared, of_jobs] {
        files.store->Count(of_jobs);
        files.counted = files.clock().steady;
        (*shared)(true);
      });
    };
  });
  if (!queued) (*shared)(false);
}

void EndStalledUploads(FileAccess& files, SteadyTime now) {
  for (UploadFileCall* const upload : files.uploads) upload->EndIfStalled(now);
}

grpc::ServerWriteReactor<v1::FetchFileResponse>* StartFetchFile(
    FileAccess& files, CoreLoop& loop, std::optional<NodeName> node,
    const v1::FetchFileRequest& request) {
  return new FetchFileCall(files, loop, std::move(node), request.sha256());
}

}  // namespace muster::service
