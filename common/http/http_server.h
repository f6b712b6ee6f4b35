// A small HTTP server for what a daemon shows of itself: metrics, health, a status page. Over
// CivetWeb.
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

// Runs on one of the server's few threads: answers from memory, never waits. Must be thread-safe.
// `query` is what follows the '?', undecoded; empty without one.
using Handler = std::function<Response(absl::string_view query)>;

// Answers GET and HEAD for exactly the paths that were registered; 404 and 405 otherwise. It has no
// files and reads no request body. Thread-safe.
class HttpServer {
 public:
  // Listens on `address`; port 0 takes a free one.
  // Errors: INVALID_ARGUMENT for a malformed address, ALREADY_EXISTS when it is in use, or what the
  // system says.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(absl::string_view address);
  // Ends the requests under way first.
  ~HttpServer();

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // What `handler` uses must outlive the server. Replaces an earlier one of the same path.
  void Handle(std::string path, Handler handler);

  // Where it listens, with the port that was chosen.
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
