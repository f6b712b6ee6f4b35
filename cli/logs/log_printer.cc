#include "cli/logs/log_printer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/output/words.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

constexpr char kUnknownTime[] = "-";

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

// The text without escape sequences, which could move the cursor.
std::string WithoutEscapes(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == '[') {
      // A control sequence ends with a byte from '@' to '~'.
      for (i += 2; i < text.size() && (text[i] < '@' || text[i] > '~');) ++i;
    }
  }
  return plain;
}

}  // namespace

LogPrinter::LogPrinter(Console& console, LogSource source, LogStyle style,
                       std::function<Time()> clock)
    : console_(console),
      source_(std::move(source)),
      style_(style),
      clock_(std::move(clock)),
      unmodified_(plain() && (!style_.live || console_.is_terminal())),
      splitter_(NewSplitter()) {}

void LogPrinter::Format(const LogLine& line, std::string& out) const {
  if (style_.form != LogForm::kText) return FormatObject(line, out);
  if (!plain()) return FormatText(line.text, line.time, out);
  absl::StrAppend(&out, line.text, line.terminated ? "\n" : "");
}

void LogPrinter::FormatText(absl::string_view text, std::optional<absl::Time> time,
                            std::string& out) const {
  if (style_.timestamps) {
    absl::StrAppend(&out, time.has_value() ? TimeText(*time) : kUnknownTime, " ");
  }
  absl::StrAppend(&out, source_.prefix, text, "\n");
}

void LogPrinter::FormatObject(const LogLine& line, std::string& out) const {
  nlohmann::ordered_json json;
  if (line.time.has_value()) json["time"] = TimeText(*line.time);
  if (source_.task.has_value()) json["task"] = *source_.task;
  json["generation"] = source_.generation;
  json["rank"] = source_.rank;
  if (!source_.node.empty()) json["node"] = source_.node;
  json["stream"] = source_.is_stderr ? "stderr" : "stdout";
  json["line"] = line.text;
  // A JSON object is a valid YAML flow mapping.
  absl::StrAppend(&out, style_.form == LogForm::kYaml ? "- " : "",
                  json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                  "\n");
}

void LogPrinter::Print(absl::string_view text) {
  to_stderr() ? console_.Err(text, this) : console_.Out(text, this);
}

void LogPrinter::Continue(LineSplitter splitter) {
  splitter_ = std::move(splitter);
  if (raw()) {
    Print(splitter_.rest());
    splitter_ = NewSplitter();
  } else {
    ShowUnfinished();
  }
}

void LogPrinter::Write(const v1::LogChunk& chunk) {
  if (raw()) return Print(chunk.data());
  splitter_.Add(chunk);
  PrintLines();
  ShowUnfinished();
}

void LogPrinter::PrintLines() {
  std::string lines;
  while (const std::optional<LogLine> line = splitter_.Next()) Format(*line, lines);
  if (lines.empty()) return;
  if (style_.live) console_.Live("", this);
  Print(lines);
}

void LogPrinter::ShowUnfinished() {
  const absl::string_view rest = splitter_.rest();
  if (!style_.live || style_.form != LogForm::kText || rest.empty()) return;
  std::string state;
  FormatText(LastState(rest), splitter_.rest_time(), state);
  if (console_.is_terminal()) {
    state.pop_back();  // the newline
    console_.Live(Printable(WithoutEscapes(state)), this);
    return;
  }
  const SteadyTime now = clock_().steady;
  if (!splitter_.rest_redrawn() || now < next_state_) return;
  next_state_ = now + kStateInterval;
  Print(state);
}

void LogPrinter::Flush() {
  if (style_.live) console_.Live("", this);
  const std::optional<LogLine> rest = splitter_.TakeRest();
  if (!rest.has_value()) return;
  std::string text;
  Format(*rest, text);
  Print(text);
}

}  // namespace muster::cli
