#include "worker/agent/files/file_placer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/files/replace_file.h"
#include "common/grpc/status.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/steady_cond_var.h"
#include "common/time/time.h"
#include "proto/muster/v1/worker.grpc.pb.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/files/file_cache.h"
#include "worker/agent/session/coordinator_channel.h"

namespace muster::agent {
namespace {

// How long a fetch is retried while the coordinator is unreachable, for example while it restarts.
constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kPause = absl::Milliseconds(250);

}  // namespace

class FilePlacer::Impl {
 public:
  Impl(std::string coordinator, security::ClientSecurity security)
      : coordinator_(std::move(coordinator)),
        security_(std::move(security)),
        stub_(coordinator_, security_),
        loop_("files") {}

  ~Impl() {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    stopped_.Signal();
    if (fetching_ != nullptr) fetching_->TryCancel();
  }

  absl::Status Open(std::string directory, uint64_t max_bytes) {
    ASSIGN_OR_RETURN(cache_,
                     FileCache::Open(std::move(directory), max_bytes,
                                     [this](const v1::FileSpec& file, const std::string& path) {
                                       return Fetch(file, path);
                                     }));
    return absl::OkStatus();
  }

  void Place(FileCache::Files files, std::vector<std::string> directories,
             const std::optional<JobUser>& user, std::function<void(const absl::Status&)> done) {
    loop_.Post([this, files = std::move(files), directories = std::move(directories), user,
                done = std::move(done)] { done(cache_->Place(files, directories, user)); });
  }

 private:
  absl::Status Fetch(const v1::FileSpec& file, const std::string& path) {
    const SteadyTime give_up = Now().steady + kPatience;
    while (true) {
      const absl::Status status = TryFetch(file, path);
      if (!absl::IsUnavailable(status) || Now().steady >= give_up || !Pause()) return status;
    }
  }

  // False when the placer is being destroyed.
  bool Pause() {
    absl::MutexLock lock(&mutex_);
    return !stopped_.WaitFor(&mutex_, kPause, [this] {
      mutex_.AssertHeld();
      return stopping_;
    });
  }

  absl::Status TryFetch(const v1::FileSpec& file, const std::string& path) {
    const OwnedFd content(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (content.get() < 0) return ErrnoStatus(errno, absl::StrCat("create ", path));
    const std::shared_ptr<v1::WorkerService::Stub> stub = stub_.Get();
    grpc::ClientContext context;
    if (!Register(&context)) return absl::CancelledError("the worker is shutting down");
    const auto unregister = absl::MakeCleanup([this] { Register(nullptr); });
    v1::FetchFileRequest request;
    request.set_sha256(file.sha256());
    const auto reader = stub->FetchFile(&context, request);
    const absl::Status received = Receive(*reader, file.size_bytes(), content.get());
    if (!received.ok()) {
      context.TryCancel();
      reader->Finish();
      return received;
    }
    const grpc::Status status = reader->Finish();
    if (status.ok()) return absl::OkStatus();
    stub_.Drop(stub);
    return security::Explain(FromGrpcStatus(status), security_, coordinator_);
  }

  static absl::Status Receive(grpc::ClientReader<v1::FetchFileResponse>& reader,
                              uint64_t size_bytes, int fd) {
    v1::FetchFileResponse response;
    while (reader.Read(&response)) {
      if (response.data().size() > size_bytes) {
        return absl::DataLossError("received more bytes than the spec's size_bytes");
      }
      size_bytes -= response.data().size();
      if (!WriteAll(fd, response.data())) return ErrnoStatus(errno, "write the received content");
    }
    return absl::OkStatus();
  }

  // Sets the call that the destructor cancels. False when the placer is being destroyed.
  bool Register(grpc::ClientContext* context) {
    absl::MutexLock lock(&mutex_);
    fetching_ = context;
    return !stopping_;
  }

  const std::string coordinator_;
  const security::ClientSecurity security_;
  // Used on the loop only, once it has been created.
  std::unique_ptr<FileCache> cache_;
  CoordinatorStub stub_;
  absl::Mutex mutex_;
  SteadyCondVar stopped_;
  grpc::ClientContext* fetching_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Destroyed first, which waits for the running placement.
  EventLoop loop_;
};

absl::StatusOr<std::unique_ptr<FilePlacer>> FilePlacer::Open(std::string coordinator,
                                                             security::ClientSecurity security,
                                                             std::string directory,
                                                             uint64_t max_bytes) {
  auto impl = std::make_unique<Impl>(std::move(coordinator), std::move(security));
  RETURN_IF_ERROR(impl->Open(std::move(directory), max_bytes));
  return std::unique_ptr<FilePlacer>(new FilePlacer(std::move(impl)));
}

FilePlacer::FilePlacer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

FilePlacer::~FilePlacer() = default;

void FilePlacer::Place(const v1::JobSpec& spec, std::vector<std::string> directories,
                       const std::optional<JobUser>& user,
                       std::function<void(const absl::Status&)> done) {
  impl_->Place(spec.files(), std::move(directories), user, std::move(done));
}

}  // namespace muster::agent
