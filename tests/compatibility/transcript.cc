#include "tests/compatibility/transcript.h"

#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"

namespace muster::compatibility {
namespace {

std::string Lines(absl::string_view direction, const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(message, &text);
  return absl::StrCat(direction, text, "\n= ", absl::Base64Escape(message.SerializeAsString()),
                      "\n");
}

absl::Status Decode(const std::string& text, absl::string_view encoding,
                    google::protobuf::Message& message) {
  const std::unique_ptr<google::protobuf::Message> meant(message.New());
  if (!google::protobuf::TextFormat::ParseFromString(text, meant.get())) {
    return absl::InvalidArgumentError(absl::StrCat("not a ", message.GetTypeName(), ": ", text));
  }
  std::string bytes;
  if (!absl::ConsumePrefix(&encoding, "= ") || !absl::Base64Unescape(encoding, &bytes) ||
      !message.ParseFromString(bytes)) {
    return absl::InvalidArgumentError("the next line is not `= ` and the message's encoding");
  }
  google::protobuf::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(*meant, message)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the encoding differs from the text: ", differences));
}

}  // namespace

std::string ToText(const v1::WorkerMessage& message) { return Lines("> ", message); }
std::string ToText(const v1::CoordinatorMessage& message) { return Lines("< ", message); }
std::string ToText(absl::string_view key, absl::string_view value) {
  return absl::StrCat("@ ", key, ": ", value, "\n");
}

absl::StatusOr<std::vector<Entry>> ParseTranscript(const std::string& text) {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.empty() || line[0] == '#') continue;
    if (absl::StartsWith(line, "@ ")) {
      metadata.insert(absl::StrSplit(line.substr(2), absl::MaxSplits(": ", 1)));
      continue;
    }
    Entry entry;
    entry.line = static_cast<int>(i) + 1;
    google::protobuf::Message* message = nullptr;
    if (absl::StartsWith(line, "> ")) {
      message = &entry.worker.emplace();
    } else if (absl::StartsWith(line, "< ")) {
      message = &entry.coordinator.emplace();
    } else {
      return absl::InvalidArgumentError(absl::StrCat("line ", entry.line, ": ", line));
    }
    const absl::Status decoded =
        Decode(line.substr(2), i + 1 < lines.size() ? lines[i + 1] : "", *message);
    if (!decoded.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", entry.line, ": ", decoded.message()));
    }
    ++i;
    entry.metadata = std::exchange(metadata, {});
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::StatusOr<std::vector<Entry>> ReadTranscript(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(path);
  std::ostringstream text;
  text << file.rdbuf();
  return ParseTranscript(text.str());
}

}  // namespace muster::compatibility
