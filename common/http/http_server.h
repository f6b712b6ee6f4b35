// A small HTTP server for a daemon's metrics, health checks and status page, based on CivetWeb.
#ifndef MUSTER_COMMON_HTTP_HTTP_SERVER_H_
#define MUSTER_COMMON_HTTP_HTTP_SERVER_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/http/address.h"
#include "common/http/message.h"

struct mg_context;
struct mg_connection;

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
  HttpServer() = default;
  static int OnRequest(mg_connection* connection);
  Response Respond(absl::string_view method, const std::string& path, const Request& request);
  // Replaces the response by an error when it has a stream and too many are open.
  bool ReserveStream(Response& response);

  mg_context* context_ = nullptr;
  Address address_;
  int max_streams_ = 0;
  std::atomic<int> streams_ = 0;
  std::atomic<bool> ending_ = false;
  absl::Mutex mutex_;
  std::map<std::string, Handler> handlers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::http

#endif  // MUSTER_COMMON_HTTP_HTTP_SERVER_H_
