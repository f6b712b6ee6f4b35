// A plain HTTP client for tests.
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

// `target` is a path with its query; `address` a loopback one. Waits for the whole answer.
absl::StatusOr<GetResult> Get(const Address& address, absl::string_view target,
                              absl::string_view method = "GET");

}  // namespace muster::http

#endif  // MUSTER_COMMON_HTTP_HTTP_GET_H_
