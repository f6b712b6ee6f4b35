// A minimal HTTP client for tests.
#ifndef MUSTER_COMMON_HTTP_HTTP_GET_H_
#define MUSTER_COMMON_HTTP_HTTP_GET_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/address.h"

namespace muster::http {

struct GetResult {
  int status = 0;
  std::string headers;
  std::string body;
};

// Requests `target`, a path with an optional query, from the IPv4 address `address`. Blocks until
// the response is complete.
// `headers` are lines such as "Authorization: Bearer TOKEN".
absl::StatusOr<GetResult> Get(const Address& address, absl::string_view target,
                              absl::string_view method = "GET",
                              const std::vector<std::string>& headers = {});

// Requests `target` and passes what arrives, head included, to `on_bytes` until it returns false or
// the response ends. `on_bytes` is called at least ten times a second, then without bytes.
absl::Status Stream(const Address& address, absl::string_view target,
                    const std::function<bool(absl::string_view bytes)>& on_bytes,
                    const std::vector<std::string>& headers = {});

}  // namespace muster::http

#endif  // MUSTER_COMMON_HTTP_HTTP_GET_H_
