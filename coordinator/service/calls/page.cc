#include "coordinator/service/calls/page.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/limits.h"

namespace muster::service {
namespace {

constexpr size_t kShownToken = 64;
constexpr size_t kFieldHeader = 16;  // exceeds any

}  // namespace

absl::StatusOr<Page> Page::Open(absl::string_view list, const std::string& token, uint32_t limit) {
  std::string decoded;
  const bool valid = absl::WebSafeBase64Unescape(token, &decoded);
  absl::string_view after = decoded;
  const bool of_list = absl::ConsumePrefix(&after, absl::StrCat(list, "/"));
  if (!token.empty() && (!valid || !of_list || after.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token: \"", absl::CHexEscape(token.substr(0, kShownToken)),
                     "\" is not a token of this list; set the next_page_token of the preceding "
                     "page, or nothing for the first page"));
  }
  const uint32_t most = limits::kJobsPerList;
  return Page(list, std::string(after), limit == 0 ? most : std::min(limit, most));
}

std::string Page::Ascending(uint64_t number) {
  return absl::StrCat(absl::Dec(number, absl::kZeroPad20));
}

bool Page::Add(const google::protobuf::Message& item, absl::string_view position) {
  bytes_ += item.ByteSizeLong() + kFieldHeader;
  if (count_ > 0 && (count_ == limit_ || bytes_ > kPageBytes)) {
    next_token_ = absl::WebSafeBase64Escape(absl::StrCat(list_, "/", last_));
    return false;
  }
  ++count_;
  last_ = std::string(position);
  return true;
}

}  // namespace muster::service
