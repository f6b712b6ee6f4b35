// The static files of the status page, which are part of the binary.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_PAGE_FILES_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_PAGE_FILES_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/http/message.h"

namespace muster::service {

struct PageFile {
  absl::string_view name;  // e.g. "style.css"
  absl::string_view text;
};

absl::Span<const PageFile> PageFiles();

// The path at which a file is served: "/" for index.html, else "/page/NAME".
std::string PathOf(const PageFile& file);

// Sends the file, or 304 if the client has it, with headers that forbid the page to load anything
// from elsewhere.
http::Response ServeFile(const PageFile& file, const http::Request& request);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_PAGE_FILES_H_
