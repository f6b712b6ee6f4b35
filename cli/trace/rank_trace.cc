#include "cli/trace/rank_trace.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using nlohmann::json;

// The names that the trainer writes, and those that people read.
constexpr std::pair<const char*, const char*> kParts[] = {
    {"data_wait", "data wait"},
    {"compute", "compute"},
    {"launch", "launch of device work"},
    {"communication", "exposed communication"},
};

std::optional<double> NumberIn(const json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string TextIn(const json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

void AddLine(const json& line, RankTrace& trace) {
  const std::optional<double> start = NumberIn(line, "time");
  if (std::string phase = TextIn(line, "phase"); !phase.empty() && start.has_value()) {
    trace.phases.push_back({std::move(phase), *start});
    return;
  }
  const std::optional<double> number = NumberIn(line, "step");
  const std::optional<double> end = NumberIn(line, "end");
  const std::optional<double> seconds = NumberIn(line, "seconds");
  if (!number.has_value() || !end.has_value() || !seconds.has_value()) return;
  RankTrace::Step step{static_cast<uint64_t>(*number), *end, *seconds, {}};
  for (const auto& [key, name] : kParts) {
    if (const auto part = NumberIn(line, key)) step.parts.push_back({name, *part});
  }
  trace.steps.push_back(std::move(step));
}

// Fields of a tar header.
constexpr size_t kBlock = 512;
constexpr size_t kSizeOffset = 124;
constexpr size_t kSizeLength = 12;
constexpr size_t kTypeOffset = 156;

// Octal digits, ended by a blank or a null byte.
std::optional<size_t> Octal(absl::string_view digits) {
  size_t value = 0;
  bool any = false;
  for (const char c : digits) {
    if (c == ' ' || c == '\0') {
      if (any) break;
      continue;
    }
    if (c < '0' || c > '7') return std::nullopt;
    value = value * 8 + static_cast<size_t>(c - '0');
    any = true;
  }
  if (!any) return std::nullopt;
  return value;
}

}  // namespace

std::string RankTracePath(uint64_t generation) {
  return absl::StrCat(".muster-trace/generation-", generation, ".jsonl");
}

absl::StatusOr<RankTrace> ParseRankTrace(absl::string_view text) {
  RankTrace trace;
  bool first = true;
  // The text after the last newline is empty or incomplete.
  const size_t end = text.rfind('\n');
  if (end == absl::string_view::npos) return absl::InvalidArgumentError("an empty trace");
  for (const absl::string_view line : absl::StrSplit(text.substr(0, end), '\n')) {
    const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (first) {
      const auto generation = NumberIn(parsed, "generation");
      const auto rank = NumberIn(parsed, "rank");
      if (!generation.has_value() || !rank.has_value()) {
        return absl::InvalidArgumentError("the first line is not that of a rank's trace");
      }
      trace.generation = static_cast<uint64_t>(*generation);
      trace.rank = static_cast<uint32_t>(*rank);
      trace.node = TextIn(parsed, "node");
      first = false;
    } else if (parsed.is_object()) {
      AddLine(parsed, trace);
    }
  }
  return trace;
}

absl::StatusOr<std::string> FirstFileOf(absl::string_view archive) {
  while (archive.size() >= kBlock && archive[0] != '\0') {
    const std::optional<size_t> size = Octal(archive.substr(kSizeOffset, kSizeLength));
    if (!size.has_value() || *size > archive.size() - kBlock) break;
    const char type = archive[kTypeOffset];
    if (type == '0' || type == '\0') return std::string(archive.substr(kBlock, *size));
    const size_t blocks = (*size + kBlock - 1) / kBlock;
    if ((blocks + 1) * kBlock > archive.size()) break;
    archive.remove_prefix((blocks + 1) * kBlock);
  }
  return absl::InvalidArgumentError("the node sent an archive without a file");
}

}  // namespace muster::cli
