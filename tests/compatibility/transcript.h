// The messages of a recorded session between a worker and a coordinator, in the order in which they
// were sent.
//
// In a transcript file, a line that begins with `> ` is a WorkerMessage and one with `< ` a
// CoordinatorMessage, in protobuf's text format. The next line is `= ` and the message's encoding
// in Base64: text has only the names of fields, so it would not show a changed field number. Before
// a Hello, `@ KEY: VALUE` is metadata of its call. Lines that begin with `#` are comments.
#ifndef MUSTER_TESTS_COMPATIBILITY_TRANSCRIPT_H_
#define MUSTER_TESTS_COMPATIBILITY_TRANSCRIPT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::compatibility {

// Exactly one of the two messages is set.
struct Entry {
  int line = 0;  // in the file, from 1
  std::optional<v1::WorkerMessage> worker;
  std::optional<v1::CoordinatorMessage> coordinator;
  std::map<std::string, std::string> metadata;  // metadata of a Hello
};

// The lines of one message or of metadata, each with its newline.
std::string ToText(const v1::WorkerMessage& message);
std::string ToText(const v1::CoordinatorMessage& message);
std::string ToText(absl::string_view key, absl::string_view value);

// Decodes the messages. Errors, with the line: INVALID_ARGUMENT for a malformed line, and for a
// message whose encoding means something else to this build than its text, e.g. because a field
// number has changed.
absl::StatusOr<std::vector<Entry>> ParseTranscript(const std::string& text);
// Also returns NOT_FOUND.
absl::StatusOr<std::vector<Entry>> ReadTranscript(const std::string& path);

}  // namespace muster::compatibility

#endif  // MUSTER_TESTS_COMPATIBILITY_TRANSCRIPT_H_
