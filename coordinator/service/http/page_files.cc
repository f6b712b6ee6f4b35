#include "coordinator/service/http/page_files.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/sha256.h"

namespace muster::service {
namespace {

constexpr PageFile kFiles[] = {
#include "coordinator/service/http/page_files.inc"
};

constexpr char kContentPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char* ContentTypeOf(absl::string_view name) {
  if (absl::EndsWith(name, ".js")) return "text/javascript; charset=utf-8";
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".svg")) return "image/svg+xml";
  return http::kHtml;
}

}  // namespace

absl::Span<const PageFile> PageFiles() { return kFiles; }

std::string PathOf(const PageFile& file) {
  return file.name == "index.html" ? "/" : absl::StrCat("/page/", file.name);
}

http::Response ServeFile(const PageFile& file, const http::Request& request) {
  const std::string tag = absl::StrCat("\"", Sha256Hex(file.text).substr(0, 16), "\"");
  http::Response response{200, ContentTypeOf(file.name), std::string(file.text)};
  if (request.Header("if-none-match") == tag) {
    response.status = 304;
    response.body.clear();
  }
  response.headers = {{"Content-Security-Policy", kContentPolicy},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Cache-Control", "no-cache"},
                      {"ETag", tag}};
  return response;
}

}  // namespace muster::service
