#include "coordinator/service/http/streams/event_writer.h"

#include "absl/strings/str_cat.h"
#include "coordinator/service/http/json/json_text.h"

namespace muster::service {

bool EventWriter::Send(absl::string_view event, absl::string_view json) {
  return stream_.Write(absl::StrCat("event: ", event, "\ndata: ", json, "\n\n"));
}

bool EventWriter::SendIfNew(absl::string_view event, const absl::StatusOr<TextCache::Text>& text,
                            TextCache::Text& sent) {
  if (!text.ok()) return SendProblem(text.status());
  if (*text == sent) return IsOpen();
  sent = *text;
  problem_.clear();
  return Send(event, **text);
}

bool EventWriter::SendProblem(const absl::Status& status) {
  if (problem_ == status.message()) return IsOpen();
  problem_ = std::string(status.message());
  return Send("problem", JsonObject().Add("message", problem_).Take());
}

void EventWriter::Tick() { stream_.Write(":\n\n"); }

}  // namespace muster::service
