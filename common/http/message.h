// Requests and responses of HttpServer.
#ifndef MUSTER_COMMON_HTTP_MESSAGE_H_
#define MUSTER_COMMON_HTTP_MESSAGE_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster::http {

inline constexpr char kPlainText[] = "text/plain; charset=utf-8";
inline constexpr char kHtml[] = "text/html; charset=utf-8";
inline constexpr char kJson[] = "application/json";
inline constexpr char kEventStream[] = "text/event-stream";

struct Request {
  std::string query;  // the part of the URL after '?', not decoded; empty if there is none
  std::map<std::string, std::string> parameters;  // of the query, decoded; the first of a name
  std::map<std::string, std::string> headers;     // by lower-case name
  std::string peer;                               // the client's IP address
  bool tls = false;                               // the connection is encrypted

  // An empty string when the request has no such parameter or header.
  absl::string_view Parameter(const std::string& name) const { return Find(parameters, name); }
  absl::string_view Header(const std::string& lower_case_name) const {
    return Find(headers, lower_case_name);
  }

 private:
  static absl::string_view Find(const std::map<std::string, std::string>& values,
                                const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? absl::string_view() : absl::string_view(found->second);
  }
};

// The body of a response that is sent piece by piece.
class BodyStream {
 public:
  virtual ~BodyStream() = default;
  // Sends the bytes. Returns false when the client has closed the connection or does not read, or
  // the server ends: the stream must then end.
  virtual bool Write(absl::string_view bytes) = 0;
  // False when the server ends.
  virtual bool IsOpen() const = 0;
};

struct Response {
  int status = 200;
  std::string content_type = kPlainText;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
  // If set, sends what follows `body`. Runs on a thread that is reserved for streams, and may block
  // for a second at a time.
  std::function<void(BodyStream&)> stream = nullptr;
};

}  // namespace muster::http

#endif  // MUSTER_COMMON_HTTP_MESSAGE_H_
