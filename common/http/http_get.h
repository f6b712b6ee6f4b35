// A minimal HTTP client for tests.
#ifndef MUSTER_COMMON_HTTP_HTTP_GET_H_
#define MUSTER_COMMON_HTTP_HTTP_GET_H_

#include <string>

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
absl::StatusOr<GetResult> Get(const Address& address, absl::string_view target,
                              absl::string_view method = "GET");

}  // namespace muster::http

#endif  // MUSTER_COMMON_HTTP_HTTP_GET_H_
