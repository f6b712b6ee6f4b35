// Sends a growing list as what is new in it.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_LINE_DELTA_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_LINE_DELTA_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/service/http/streams/event_writer.h"

namespace muster::service {

// The list that a page has, as lines of JSON.
class LineDelta {
 public:
  // Brings the page's list to `text`, one element per line: {"keep": number of elements that stay,
  // "add": [the elements after them]}. Returns false when the stream has ended.
  bool Send(absl::string_view event, const TextCache::Text& text, EventWriter& out) {
    if (text == sent_) return out.IsOpen();
    std::vector<std::string> lines = absl::StrSplit(*text, '\n', absl::SkipEmpty());
    const auto [differs, _] =
        std::mismatch(lines.begin(), lines.end(), lines_.begin(), lines_.end());
    const auto keep = differs - lines.begin();
    const std::string json = absl::StrCat("{\"keep\":", keep, ",\"add\":[",
                                          absl::StrJoin(differs, lines.end(), ","), "]}");
    lines_ = std::move(lines);
    sent_ = text;
    return out.Send(event, json);
  }

 private:
  TextCache::Text sent_;
  std::vector<std::string> lines_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_LINE_DELTA_H_
