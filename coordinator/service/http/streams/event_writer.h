// Writes server-sent events.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_EVENT_WRITER_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_EVENT_WRITER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/http/message.h"
#include "coordinator/service/http/streams/text_cache.h"

namespace muster::service {

class EventWriter {
 public:
  explicit EventWriter(http::BodyStream& stream) : stream_(stream) {}

  // `json` must not contain line breaks. Each returns false when the stream has ended.
  bool Send(absl::string_view event, absl::string_view json);
  // Sends the text unless it is the one in `sent`, which it then becomes. An error becomes the
  // event "problem".
  bool SendIfNew(absl::string_view event, const absl::StatusOr<TextCache::Text>& text,
                 TextCache::Text& sent);
  // {"message": text} as the event "problem", unless it is the previous one.
  bool SendProblem(const absl::Status& status);
  // Called at least once per kPageInterval. Sends a comment, so that a closed page is noticed
  // although nothing changes: the second write to its connection fails.
  void Tick();
  bool IsOpen() const { return stream_.IsOpen(); }

 private:
  http::BodyStream& stream_;
  std::string problem_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_EVENT_WRITER_H_
