#include "cli/logs/log_printer.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

std::string TimeNow() {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
}

}  // namespace

void LogPrinter::Write(absl::string_view data) {
  const std::string time = style_.timestamps ? TimeNow() : "";
  std::string lines;
  while (true) {
    const size_t end = data.find('\n');
    if (end == absl::string_view::npos) break;
    if (partial_.empty()) {
      Append(data.substr(0, end), time, lines);
    } else {
      absl::StrAppend(&partial_, data.substr(0, end));
      Append(partial_, time, lines);
      partial_.clear();
    }
    data.remove_prefix(end + 1);
  }
  partial_.append(data.data(), data.size());
  if (!lines.empty()) Print(lines);
  if (partial_.size() > kMaxLineBytes) Flush();
}

void LogPrinter::Append(absl::string_view line, absl::string_view time, std::string& out) const {
  if (style_.form == LogForm::kText) {
    absl::StrAppend(&out, time, time.empty() ? "" : " ", source_.prefix, line, "\n");
    return;
  }
  nlohmann::ordered_json json;
  if (!time.empty()) json["time"] = std::string(time);
  json["generation"] = source_.generation;
  json["rank"] = source_.rank;
  if (!source_.node.empty()) json["node"] = source_.node;
  json["stream"] = source_.is_stderr ? "stderr" : "stdout";
  json["line"] = std::string(line);
  // A JSON object is a valid YAML flow mapping.
  absl::StrAppend(&out, style_.form == LogForm::kYaml ? "- " : "",
                  json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                  "\n");
}

void LogPrinter::Flush() {
  if (partial_.empty()) return;
  std::string text;
  if (plain()) {
    text = partial_;
  } else {
    Append(partial_, style_.timestamps ? TimeNow() : "", text);
  }
  Print(text);
  partial_.clear();
}

void LogPrinter::Print(absl::string_view text) {
  style_.split&& source_.is_stderr ? console_.Err(text) : console_.Out(text);
}

}  // namespace muster::cli
