// A small HTTP server for a daemon's metrics, health checks and status page.
#ifndef MUSTER_COMMON_HTTP_HTTP_SERVER_H_
#define MUSTER_COMMON_HTTP_HTTP_SERVER_H_

#include <atomic>
#include <deque>
#include <functional>
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

namespace muster::http {

// Runs on one of the server's few threads, so it must not block. Must be thread-safe.
using Handler = std::function<Response(const Request&)>;

// Serves GET and HEAD for exactly the registered paths; 404 and 405 otherwise. Serves no files and
// reads no request bodies. Thread-safe.
class HttpServer {
 public:
  // Listens on `address`; port 0 chooses a free port. At most `max_streams` responses with a stream
  // are open at the same time; further ones are answered with 503. Their threads are added to those
  // for other requests, so that open streams delay none of them. Errors: INVALID_ARGUMENT for a
  // malformed address, ALREADY_EXISTS if it is in use, otherwise the system's error.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(absl::string_view address,
                                                           int max_streams = 0);
  // Waits for requests in progress; streams end at their next write.
  ~HttpServer();

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Registers `handler` for `path`, replacing an earlier one. Objects that it references must
  // outlive the server.
  void Handle(std::string path, Handler handler);

  // The listening address, with the chosen port.
  const Address& address() const { return address_; }
  int open_streams() const { return streams_; }

 private:
  HttpServer(ListeningSockets listening, std::string host, int max_streams);
  void OnConnection(int fd);
  // Answers connections until the server ends.
  void Run();
  // Reads one request and answers it.
  void Answer(int fd);
  Response Respond(absl::string_view method, const std::string& path, const Request& request);
  // Replaces the response by an error when it has a stream and too many are open.
  bool ReserveStream(Response& response);

  const Address address_;
  const int max_streams_;
  std::atomic<int> streams_ = 0;
  std::atomic<bool> ending_ = false;
  const int end_;  // eventfd; readable when the server ends
  absl::Mutex mutex_;
  std::map<std::string, Handler> handlers_ ABSL_GUARDED_BY(mutex_);
  std::deque<int> connections_ ABSL_GUARDED_BY(mutex_);  // that wait for a thread
  Acceptor acceptor_;
  std::vector<std::thread> threads_;
};

}  // namespace muster::http

#endif  // MUSTER_COMMON_HTTP_HTTP_SERVER_H_
