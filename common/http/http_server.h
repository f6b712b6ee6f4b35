// A small HTTP server for a daemon's metrics, health checks and status page, based on CivetWeb.
#ifndef MUSTER_COMMON_HTTP_HTTP_SERVER_H_
#define MUSTER_COMMON_HTTP_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/http/address.h"

struct mg_context;
struct mg_connection;

namespace muster::http {

inline constexpr char kPlainText[] = "text/plain; charset=utf-8";
inline constexpr char kHtml[] = "text/html; charset=utf-8";
inline constexpr char kJson[] = "application/json";

struct Response {
  int status = 200;
  std::string content_type = kPlainText;
  std::string body;
};

// Runs on one of the server's few threads, so it must not block. Must be thread-safe. `query` is
// the part of the URL after '?', not decoded; empty if there is none.
using Handler = std::function<Response(absl::string_view query)>;

// Serves GET and HEAD for exactly the registered paths; 404 and 405 otherwise. Serves no files and
// reads no request bodies. Thread-safe.
class HttpServer {
 public:
  // Listens on `address`; port 0 chooses a free port. Errors: INVALID_ARGUMENT for a malformed
  // address, ALREADY_EXISTS if it is in use, otherwise the system's error.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(absl::string_view address);
  // Waits for requests in progress.
  ~HttpServer();

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Registers `handler` for `path`, replacing an earlier one. Objects that it references must
  // outlive the server.
  void Handle(std::string path, Handler handler);

  // The listening address, with the chosen port.
  const Address& address() const { return address_; }

 private:
  HttpServer() = default;
  static int OnRequest(mg_connection* connection);
  Response Respond(absl::string_view method, const std::string& path, absl::string_view query);

  mg_context* context_ = nullptr;
  Address address_;
  absl::Mutex mutex_;
  std::map<std::string, Handler> handlers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::http

#endif  // MUSTER_COMMON_HTTP_HTTP_SERVER_H_
