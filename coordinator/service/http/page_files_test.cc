#include "coordinator/service/http/page_files.h"

#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;

std::string HeaderOf(const http::Response& response, const std::string& name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST(PageFiles, WeighLessThan200KB) {
  size_t bytes = 0;
  for (const PageFile& file : PageFiles()) bytes += file.text.size();
  EXPECT_GT(bytes, 10'000u);
  EXPECT_LT(bytes, 200'000u);
}

// The content policy allows neither inline scripts and styles nor other hosts.
TEST(PageFiles, LoadNothingFromElsewhere) {
  for (const PageFile& file : PageFiles()) {
    for (const char* const forbidden :
         {"https://", "//cdn", "<style", " style=", " onclick=", "innerHTML", "eval("}) {
      EXPECT_FALSE(absl::StrContains(file.text, forbidden)) << file.name << ": " << forbidden;
    }
  }
}

TEST(PageFiles, EveryFileHasATypeAndAPolicy) {
  bool has_index = false;
  for (const PageFile& file : PageFiles()) {
    const http::Response response = ServeFile(file, {});
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, file.text);
    EXPECT_THAT(HeaderOf(response, "Content-Security-Policy"), HasSubstr("default-src 'none'"));
    EXPECT_EQ(response.content_type == http::kHtml, PathOf(file) == "/") << file.name;
    has_index |= PathOf(file) == "/";
  }
  EXPECT_TRUE(has_index);
}

TEST(PageFiles, KnownFileIsNotSentAgain) {
  const PageFile& file = PageFiles()[0];
  http::Request request;
  request.headers["if-none-match"] = HeaderOf(ServeFile(file, {}), "ETag");
  EXPECT_EQ(ServeFile(file, request).status, 304);
  EXPECT_EQ(ServeFile(file, request).body, "");
  request.headers["if-none-match"] = "\"other\"";
  EXPECT_EQ(ServeFile(file, request).status, 200);
}

}  // namespace
}  // namespace muster::service
