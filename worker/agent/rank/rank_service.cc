#include "worker/agent/rank/rank_service.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/grpc/deadline.h"
#include "common/grpc/listener.h"
#include "common/grpc/status.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "glog/logging.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/muster/v1/rank.grpc.pb.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {
namespace {

using Done = std::function<void(const absl::Status&)>;

// Calls are answered before their deadline, so that the rank receives an error that names what it
// waited for, also from a machine with much to do.
constexpr absl::Duration kAnswerAhead = absl::Seconds(1);

std::atomic<CallId> next_call_id{1};

// State shared by both kinds of reactors: the caller and how to cancel the call.
struct Route {
  EventLoop& loop;
  GenerationTable& table;
  v1::RankIdentity identity;
  CallId id = next_call_id.fetch_add(1);

  // The generation of the caller; to be called on the loop. ABORTED if it is over or not on this
  // node, UNAUTHENTICATED for a wrong token.
  absl::StatusOr<Generation*> Authenticate() const {
    Generation* const generation = table.Find(identity.job_id(), identity.generation());
    if (generation == nullptr) return absl::AbortedError("the generation is over");
    const Rank* const rank = generation->ranks().Find(identity.rank());
    if (rank != nullptr && rank->TokenMatches(identity.token())) return generation;
    return absl::UnauthenticatedError("the token does not match the rank");
  }
  void Cancel() const {
    loop.Post([route = *this] {
      const auto generation = route.Authenticate();
      if (generation.ok()) (*generation)->calls().Cancel(route.id);
    });
  }
};

class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  using Body = std::function<void(Generation&, CallId, Done)>;

  // Runs `body` on the loop once the caller is authenticated; `body` must call Finish exactly once.
  UnaryCall(EventLoop& loop, GenerationTable& table, grpc::CallbackServerContext* context,
            const v1::RankIdentity& identity, bool waits, Body body)
      : route_{loop, table, identity}, waits_(waits) {
    const Deadline expires(context->deadline() == std::chrono::system_clock::time_point::max()
                               ? absl::InfiniteDuration()
                               : absl::FromChrono(context->deadline()) - absl::Now());
    loop.Post([this, expires, body = std::move(body)] {
      const auto generation = route_.Authenticate();
      if (!generation.ok()) return Answer(generation.status());
      if (waits_ && expires.left() < absl::InfiniteDuration()) ExpireIn(expires.left());
      // The call may be answered, and thus deleted, when `body` returns.
      body(**generation, route_.id, [this](const absl::Status& status) { Answer(status); });
    });
  }

  void OnCancel() override {
    if (waits_) route_.Cancel();
  }
  void OnDone() override { delete this; }

 private:
  void ExpireIn(absl::Duration left) {
    timer_ = route_.loop.RunAfter(std::max(left - kAnswerAhead, left / 2), [this] {
      timer_.reset();
      const auto generation = route_.Authenticate();
      if (generation.ok()) (*generation)->calls().rendezvous().Expire(route_.id);
    });
  }

  void Answer(const absl::Status& status) {
    if (timer_.has_value()) route_.loop.Cancel(*timer_);
    Finish(ToGrpcStatus(status));
  }

  const Route route_;
  const bool waits_;
  std::optional<EventLoop::TimerId> timer_;  // used on the loop only
};

class WatchCall final : public grpc::ServerWriteReactor<v1::Directive> {
 public:
  WatchCall(EventLoop& loop, GenerationTable& table, const v1::RankIdentity& identity)
      : route_{loop, table, identity} {
    loop.Post([this] {
      const auto generation = route_.Authenticate();
      if (!generation.ok()) return End(generation.status());
      (*generation)
          ->calls()
          .directives()
          .Watch(route_.id, {route_.identity.rank(),
                             [this](const v1::Directive& directive) { Push(directive); },
                             [this](const absl::Status& status) { End(status); }});
    });
  }

  void OnWriteDone(bool) override {
    std::optional<grpc::Status> end;
    {
      absl::MutexLock lock(&mutex_);
      queue_.pop_front();
      end = Proceed();
    }
    if (end.has_value()) Finish(*end);
  }
  void OnCancel() override { route_.Cancel(); }
  void OnDone() override { delete this; }

 private:
  void Push(const v1::Directive& directive) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    // A newer directive replaces one that was not sent yet. The directive to stop is always the
    // last one.
    if (queue_.size() > 1) queue_.pop_back();
    queue_.push_back(directive);
    if (queue_.size() == 1) Proceed();
  }

  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::optional<grpc::Status> end;
    {
      absl::MutexLock lock(&mutex_);
      end_ = status;
      ended_ = true;
      if (queue_.empty()) end = Proceed();
    }
    if (end.has_value()) Finish(*end);
  }

  // Writes the next directive, or returns the status to finish with. The caller must finish without
  // holding the lock, because that may delete this object on another thread.
  std::optional<grpc::Status> Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!queue_.empty()) {
      StartWrite(&queue_.front());
    } else if (ended_) {
      return ToGrpcStatus(end_);
    }
    return std::nullopt;
  }

  const Route route_;
  absl::Mutex mutex_;
  std::deque<v1::Directive> queue_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

class Service final : public v1::RankService::CallbackService {
 public:
  Service(EventLoop& loop, GenerationTable& table) : loop_(loop), table_(table) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override {
    return new UnaryCall(loop_, table_, context, request->identity(), true,
                         [request, response](Generation& generation, CallId id, Done finish) {
                           generation.calls().Join(
                               *request, id,
                               [response, finish](absl::StatusOr<v1::JoinResponse> answer) {
                                 if (answer.ok()) *response = *std::move(answer);
                                 finish(answer.status());
                               });
                         });
  }

  grpc::ServerUnaryReactor* PutKey(grpc::CallbackServerContext* context,
                                   const v1::PutRankKeyRequest* request,
                                   v1::PutRankKeyResponse*) override {
    return new UnaryCall(
        loop_, table_, context, request->identity(), true,
        [request](Generation& generation, CallId id, Done finish) {
          generation.calls().rendezvous().Put(
              request->identity().rank(), request->key(), request->value(), id,
              [finish](const absl::StatusOr<std::string>& answer) { finish(answer.status()); });
        });
  }

  grpc::ServerUnaryReactor* GetKey(grpc::CallbackServerContext* context,
                                   const v1::GetRankKeyRequest* request,
                                   v1::GetRankKeyResponse* response) override {
    return new UnaryCall(loop_, table_, context, request->identity(), true,
                         [request, response](Generation& generation, CallId id, Done finish) {
                           generation.calls().rendezvous().Get(
                               request->identity().rank(), request->key(), id,
                               [response, finish](absl::StatusOr<std::string> answer) {
                                 if (answer.ok()) response->set_value(*std::move(answer));
                                 finish(answer.status());
                               });
                         });
  }

  grpc::ServerUnaryReactor* Barrier(grpc::CallbackServerContext* context,
                                    const v1::BarrierRequest* request,
                                    v1::BarrierResponse*) override {
    return new UnaryCall(
        loop_, table_, context, request->identity(), true,
        [request](Generation& generation, CallId id, Done finish) {
          generation.calls().rendezvous().Arrive(
              request->identity().rank(), request->barrier(), id,
              [finish](const absl::StatusOr<std::string>& answer) { finish(answer.status()); });
        });
  }

  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context,
                                   const v1::ReportRequest* request, v1::ReportResponse*) override {
    return new UnaryCall(
        loop_, table_, context, request->identity(), false,
        [request](Generation& generation, CallId, Done finish) {
          finish(generation.ranks().Find(request->identity().rank())->Report(*request));
        });
  }

  grpc::ServerWriteReactor<v1::Directive>* Watch(grpc::CallbackServerContext*,
                                                 const v1::WatchRequest* request) override {
    return new WatchCall(loop_, table_, request->identity());
  }

 private:
  EventLoop& loop_;
  GenerationTable& table_;
};

// Listens at a path until it is destroyed.
class GrpcRankServer {
 public:
  GrpcRankServer(EventLoop& loop, GenerationTable& table) : service_(loop, table) {}

  ~GrpcRankServer() {
    if (server_ == nullptr) return;
    listener_->Stop();
    // Cancels waiting calls.
    server_->Shutdown(GrpcDeadline(absl::ZeroDuration()));
    server_->Wait();
  }

  absl::Status Listen(const std::string& path, bool has_job_users) {
    ASSIGN_OR_RETURN(listener_, GrpcListener::OpenUnix(path));
    if (has_job_users && chmod(path.c_str(), 0666) != 0) {
      return ErrnoStatus(errno, absl::StrCat("chmod ", path));
    }
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(limits::kMessageBytes);
    builder.SetMaxSendMessageSize(limits::kMessageBytes);
    listener_->AddTo(builder, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    path_ = path;
    if (lstat(path.c_str(), &socket_) != 0) return ErrnoStatus(errno, path);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("cannot start the rank server");
    listener_->Start();
    return absl::OkStatus();
  }

  // Whether the socket is still at its path.
  bool IsReachable() const {
    struct stat now = {};
    return lstat(path_.c_str(), &now) == 0 && now.st_dev == socket_.st_dev &&
           now.st_ino == socket_.st_ino && now.st_mode == socket_.st_mode;
  }

 private:
  Service service_;
  std::string path_;
  struct stat socket_ = {};
  std::unique_ptr<GrpcListener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

class RankServerImpl final : public RankServer {
 public:
  RankServerImpl(std::string path, EventLoop& loop, GenerationTable& table, bool has_job_users,
                 std::function<void(const absl::Status&)> on_failure)
      : path_(std::move(path)),
        loop_(loop),
        table_(table),
        has_job_users_(has_job_users),
        on_failure_(std::move(on_failure)) {}

  absl::Status Listen() {
    RETURN_IF_ERROR(MakeDirectories(std::filesystem::path(path_).parent_path().string()));
    auto server = std::make_unique<GrpcRankServer>(loop_, table_);
    RETURN_IF_ERROR(server->Listen(path_, has_job_users_));
    server_ = std::move(server);
    return absl::OkStatus();
  }

  void CheckOn(Sweeper& sweeper) override {
    if (!checking_.exchange(true)) sweeper.Post([this] { Check(); });
  }

 private:
  void Check() {
    checking_ = false;
    if (server_ == nullptr || server_->IsReachable()) return;
    LOG(ERROR)
        << "the ranks' socket " << path_
        << " was removed or replaced; listening again (with --job-user, jobs cannot remove it)";
    server_.reset();
    const absl::Status started = Listen();
    if (started.ok()) return;
    on_failure_(absl::FailedPreconditionError(absl::StrCat(
        "no rank can join, because the ranks' socket cannot be restored: ", started.message())));
  }

  const std::string path_;
  EventLoop& loop_;
  GenerationTable& table_;
  const bool has_job_users_;
  const std::function<void(const absl::Status&)> on_failure_;
  std::unique_ptr<GrpcRankServer> server_;  // null once it could not be restored
  std::atomic<bool> checking_ = false;      // a check is pending
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankServer>> RankServer::Start(
    std::string path, EventLoop& loop, GenerationTable& table, bool has_job_users,
    std::function<void(const absl::Status&)> on_failure) {
  auto server = std::make_unique<RankServerImpl>(std::move(path), loop, table, has_job_users,
                                                 std::move(on_failure));
  RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace muster::agent
