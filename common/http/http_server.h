// A small HTTP server for a daemon's metrics, health checks and status page.
#ifndef MUSTER_COMMON_HTTP_HTTP_SERVER_H_
#define MUSTER_COMMON_HTTP_HTTP_SERVER_H_

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/http/address.h"
#include "common/http/message.h"
#include "common/network/acceptor.h"
#include "common/security/tls.h"
#include "common/security/tls_server.h"
#include "common/time/time.h"

namespace muster::http {

// Runs on one of the server's few threads, so it must not block. Must be thread-safe.
using Handler = std::function<Response(const Request&)>;

// Serves GET and HEAD, and POST without a body, for exactly the registered paths; 404 and 405
// otherwise. Serves no files. Thread-safe.
class HttpServer {
 public:
  // Listens on `address`; port 0 chooses a free port. At most `max_streams` responses with a stream
  // are open at the same time; further ones are answered with 503. Their threads are added to those
  // for other requests, so that open streams delay none of them. With a certificate in `tls`, it
  // serves TLS to clients that begin a handshake (see security::TlsServer), and plaintext to the
  // others. Errors: INVALID_ARGUMENT for a malformed address, ALREADY_EXISTS if it is in use,
  // otherwise the system's error.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(absl::string_view address,
                                                           int max_streams = 0,
                                                           const security::TlsFiles& tls = {});
  // Waits for requests in progress; streams end at their next write.
  ~HttpServer();

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Registers `handler` for `path`, replacing an earlier one. Objects that it references must
  // outlive the server.
  void Handle(std::string path, Handler handler);
  // The same for POST.
  void HandlePost(const std::string& path, Handler handler);
  // The registered paths; those of POST begin with "POST ".
  std::vector<std::string> ListPaths();

  // The listening address, with the chosen port.
  const Address& address() const { return address_; }
  bool serves_tls() const { return tls_ != nullptr; }
  int open_streams() const { return streams_; }

 private:
  HttpServer(ListeningSockets listening, std::string host, int max_streams,
             const security::TlsFiles& tls);
  // A connection, and what its thread does.
  struct Client {
    enum class Phase { kReadsRequest, kSendsResponse, kStreams, kIsClosed };
    int fd;
    std::string address;
    SteadyTime since;
    Phase phase = Phase::kReadsRequest;
  };
  using Clients = std::list<Client>;

  void OnConnection(int fd);
  // Closes connections whose clients are slow while others wait for a thread: first those of the
  // addresses with the most. Returns whether any wait.
  bool CloseSlow();
  // Answers connections until the server ends.
  void Run();
  // Reads one request and answers it.
  void Answer(Clients::iterator client);
  void Enter(Clients::iterator client, Client::Phase phase);
  Response Respond(absl::string_view method, const std::string& path, const Request& request);
  // Replaces the response by an error when it has a stream and too many are open.
  bool ReserveStream(Response& response);

  const Address address_;
  const int max_streams_;
  const std::unique_ptr<security::TlsServer> tls_;  // null without a certificate
  std::atomic<int> streams_ = 0;
  std::atomic<bool> ending_ = false;
  const int end_;  // eventfd; readable when the server ends
  absl::Mutex mutex_;
  std::map<std::string, Handler> handlers_ ABSL_GUARDED_BY(mutex_);  // of POST: by "POST " + path
  // Clients that wait for a thread, and those that have one; the oldest first.
  Clients waiting_ ABSL_GUARDED_BY(mutex_);
  Clients served_ ABSL_GUARDED_BY(mutex_);
  size_t idle_threads_ ABSL_GUARDED_BY(mutex_) = 0;
  // Addresses with slow clients that were logged, and when.
  std::map<std::string, SteadyTime> logged_ ABSL_GUARDED_BY(mutex_);
  Acceptor acceptor_;
  std::vector<std::thread> threads_;
};

}  // namespace muster::http

#endif  // MUSTER_COMMON_HTTP_HTTP_SERVER_H_
