#include "common/grpc/listener.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster {
namespace {

using Builder = grpc::ServerBuilder::experimental_type;
using ::grpc::experimental::InterceptionHookPoints;

// Bounds how many streams of a connection gRPC opens before their calls are counted.
constexpr int kReadBytes = 64 << 10;

// Counts the calls of connections that have not authenticated.
class CallCounter final : public grpc::experimental::Interceptor {
 public:
  CallCounter(Admission& admission, grpc::ServerContextBase& context)
      : admission_(admission), context_(context) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      admission_.OnCall(context_.peer());
    }
    methods->Proceed();
  }

 private:
  Admission& admission_;
  grpc::ServerContextBase& context_;
};

class CallCounters final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallCounters(std::shared_ptr<Admission> admission) : admission_(std::move(admission)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    if (!admission_->HasStrangers()) return nullptr;
    return new CallCounter(*admission_, *info->server_context());
  }

 private:
  const std::shared_ptr<Admission> admission_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Open(const Address& address) {
  ASSIGN_OR_RETURN(ListeningSockets listening, Listen(address));
  for (const int socket : listening.sockets) {
    const int on = 1;  // accepted connections inherit it
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return absl::WrapUnique(new GrpcListener(std::move(listening.sockets), listening.port));
}

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::OpenUnix(const std::string& path) {
  const std::string what = absl::StrCat("listen on ", path);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ErrnoStatus(ENAMETOOLONG, what);
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoStatus(errno, what);
  unlink(path.c_str());
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(fd, SOMAXCONN) != 0) {
    const int error = errno;
    close(fd);
    return ErrnoStatus(error, what);
  }
  return absl::WrapUnique(new GrpcListener({fd}, 0));
}

GrpcListener::GrpcListener(std::vector<int> sockets, uint16_t port)
    : admission_(std::make_shared<Admission>([this](int socket, int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.listener_fd = socket;
        connection.fd = fd;
        server_->HandleNewConnection(&connection);
      })),
      acceptor_(std::move(sockets)),
      port_(port) {}

void GrpcListener::SetUserTimeout(std::chrono::milliseconds timeout) {
  const auto ms = static_cast<unsigned>(timeout.count());  // accepted connections inherit it
  for (const int socket : acceptor_.sockets()) {
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
  }
}

void GrpcListener::AddTo(grpc::ServerBuilder& builder,
                         std::shared_ptr<grpc::ServerCredentials> credentials,
                         Interceptors interceptors) {
  server_ = builder.experimental().AddExternalConnectionAcceptor(
      Builder::ExternalConnectionType::FROM_FD, std::move(credentials));
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytes);
  interceptors.push_back(std::make_unique<CallCounters>(admission_));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
}

void GrpcListener::OnAuthenticated(const grpc::ServerContextBase& call) {
  if (admission_->HasStrangers()) admission_->OnAuthenticated(call.peer());
}

bool GrpcListener::WasLogged(const grpc::ServerContextBase& call) {
  return admission_->WasLogged(call.peer());
}

void GrpcListener::Start() {
  acceptor_.Start([this](int socket, int fd) { admission_->OnConnection(socket, fd); },
                  [this] { return admission_->Update(); });
}

void GrpcListener::Stop() { acceptor_.Stop(); }

}  // namespace muster
