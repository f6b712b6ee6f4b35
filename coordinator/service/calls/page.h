// Pages of lists.
//
// A page has at most a number of items and, unless it has only one, a number of bytes, so that
// every client can receive it. The token of the next page contains the position of the last item of
// this page in the order of the list: items that are added or removed meanwhile hide no others.
#ifndef MUSTER_COORDINATOR_SERVICE_CALLS_PAGE_H_
#define MUSTER_COORDINATOR_SERVICE_CALLS_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "google/protobuf/repeated_field.h"

namespace muster::service {

inline constexpr size_t kPageBytes = 2 << 20;

class Page {
 public:
  // `list` distinguishes the tokens of different lists. `limit` is the most items; 0:
  // limits::kJobsPerList. Errors: INVALID_ARGUMENT for a token of another list.
  static absl::StatusOr<Page> Open(absl::string_view list, const std::string& token,
                                   uint32_t limit = 0);

  // Positions of numbered items, in ascending or descending order.
  static std::string Ascending(uint64_t number);
  static std::string Descending(uint64_t number) { return Ascending(~number); }

  // The position of the last item of the preceding page; empty: this is the first page.
  const std::string& after() const { return after_; }
  bool IsAfter(absl::string_view position) const { return after_.empty() || position > after_; }

  // Adds the next item. Returns false if it belongs to the next page.
  bool Add(const google::protobuf::Message& item, absl::string_view position);

  // Leaves the items of this page in a list in the order of their positions.
  template <typename Item, typename PositionOf, typename Less = std::less<std::string>>
  void Keep(google::protobuf::RepeatedPtrField<Item>& items, PositionOf position_of,
            Less less = {}) {
    int begin = 0;
    while (begin < items.size() && !after_.empty() && !less(after_, position_of(items[begin]))) {
      ++begin;
    }
    int end = begin;
    while (end < items.size() && Add(items[end], position_of(items[end]))) ++end;
    items.DeleteSubrange(end, items.size() - end);
    items.DeleteSubrange(0, begin);
  }

  // Empty unless Add has returned false.
  const std::string& next_token() const { return next_token_; }

 private:
  Page(absl::string_view list, std::string after, size_t limit)
      : list_(list), after_(std::move(after)), limit_(limit) {}

  std::string list_;
  std::string after_;
  size_t limit_;
  size_t count_ = 0;
  size_t bytes_ = 0;
  std::string last_;
  std::string next_token_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CALLS_PAGE_H_
