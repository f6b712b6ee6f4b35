#include "cli/compare/comparison_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cli/output/words.h"

namespace muster::cli {
namespace {

constexpr size_t kGap = 2;

// The number of bytes of the first code point of valid UTF-8.
size_t CodePointBytes(absl::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() && (text[bytes] & 0xC0) == 0x80) ++bytes;
  return bytes;
}

// The number of bytes of `text` that fit into `width` columns; at least one code point.
size_t FittingBytes(absl::string_view text, size_t width) {
  size_t bytes = 0;
  size_t used = 0;
  while (bytes < text.size()) {
    const size_t next = CodePointBytes(text.substr(bytes));
    used += DisplayWidth(text.substr(bytes, next));
    if (used > width && bytes > 0) break;
    bytes += next;
  }
  return bytes;
}

std::string Padded(const std::string& text, size_t width) {
  const size_t used = DisplayWidth(text);
  return used < width ? text + std::string(width - used, ' ') : text;
}

size_t WidestCell(const std::vector<std::vector<std::string>>& rows, size_t column) {
  size_t widest = 0;
  for (const auto& row : rows) widest = std::max(widest, DisplayWidth(row[column]));
  return widest;
}

using nlohmann::ordered_json;
using Cells = std::vector<std::string>;

// Maximum number of files that are named.
constexpr size_t kNamedFiles = 5;

// The letter that stands for a job in the column headers.
std::string Letter(size_t job) { return std::string(1, static_cast<char>('A' + job)); }

Cells Heads(const std::string& first, size_t jobs) {
  Cells heads = {first};
  for (size_t i = 0; i < jobs; ++i) heads.push_back(Letter(i));
  return heads;
}

// A value as a spec or a person would write it; empty for null.
std::string PlainText(const ordered_json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// "train.py 1a2b3c4d, conf.yaml 5e6f7a8b": the job's files that another job lacks or has with other
// content, with the beginning of their digests.
std::string FilesText(const ComparedRow& row, size_t job) {
  std::vector<std::map<std::string, std::string>> digests(row.values.size());
  for (size_t i = 0; i < row.values.size(); ++i) {
    for (const ordered_json& file : row.values[i]) {
      digests[i][PlainText(file["path"])] = PlainText(file["sha256"]);
    }
  }
  Cells names;
  for (const auto& file : digests[job]) {
    const bool everywhere = absl::c_all_of(digests, [&](const auto& other) {
      const auto found = other.find(file.first);
      return found != other.end() && found->second == file.second;
    });
    if (!everywhere) names.push_back(absl::StrCat(file.first, " ", file.second.substr(0, 8)));
  }
  if (names.empty()) return absl::StrCat(digests[job].size(), " files");
  if (names.size() > kNamedFiles) {
    const size_t more = names.size() - kNamedFiles;
    names.resize(kNamedFiles);
    names.push_back(absl::StrCat(more, " more"));
  }
  return absl::StrJoin(names, ", ");
}

// "0.0123 s", "1.5 GiB", "93.1 %": the unit is at the end of the name.
std::string ResultText(const std::string& name, const ordered_json& value) {
  if (!value.is_number()) return PlainText(value);
  const double number = value.get<double>();
  if (absl::EndsWith(name, "_bytes")) return Bytes(static_cast<uint64_t>(std::max(number, 0.0)));
  if (absl::EndsWith(name, "_ratio") || name == "test_accuracy") {
    return absl::StrFormat("%.2f %%", 100 * number);
  }
  const bool seconds = absl::EndsWith(name, "_seconds") || absl::StartsWith(name, "seconds_");
  if (seconds && number >= 100) return Elapsed(absl::Seconds(number));
  if (value.is_number_integer()) return Grouped(value.get<uint64_t>());
  return absl::StrCat(absl::StrFormat("%.4g", number), seconds ? " s" : "");
}

// "test accuracy": the name of a result without its unit.
std::string ResultName(absl::string_view name) {
  for (const absl::string_view unit : {"_seconds", "_bytes", "_ratio"}) {
    if (absl::ConsumeSuffix(&name, unit)) break;
  }
  absl::ConsumePrefix(&name, "seconds_to_");
  return absl::StrReplaceAll(name, {{"_", " "}, {"images_per_second", "images/s"}});
}

// "+3.2 %": the second job's number relative to the first's.
std::string ChangeText(const ComparedRow& row) {
  if (!row.values[0].is_number() || !row.values[1].is_number()) return "";
  const double before = row.values[0].get<double>();
  const double after = row.values[1].get<double>();
  if (before == 0) return "";
  const double change = 100 * (after - before) / std::abs(before);
  return absl::StrFormat("%+.1f %%", change);
}

std::string Section(const std::string& title, const std::string& body) {
  return absl::StrCat("\n", title, "\n", body);
}

std::string JobsText(const Comparison& comparison, size_t width) {
  std::vector<Cells> rows = {{" ", "JOB", "NAME", "STATE"}};
  for (size_t i = 0; i < comparison.jobs.size(); ++i) {
    const v1::Job& job = comparison.jobs[i];
    rows.push_back({Letter(i), job.job_id(), job.spec().name(), v1::JobState_Name(job.state())});
  }
  return ColumnsText(rows, width);
}

// A table of the rows that differ.
std::string PropertiesText(const std::string& title, const std::string& head,
                           const std::vector<ComparedRow>& compared, size_t jobs, bool with_equal,
                           size_t width) {
  std::vector<Cells> rows = {Heads(head, jobs)};
  for (const ComparedRow& row : compared) {
    if (!with_equal && !row.Differs()) continue;
    Cells cells = {row.name};
    for (size_t i = 0; i < jobs; ++i) {
      cells.push_back(row.name == "files" ? FilesText(row, i) : PlainText(row.values[i]));
    }
    rows.push_back(std::move(cells));
  }
  return Section(title, rows.size() == 1 ? "no differences\n" : ColumnsText(rows, width));
}

std::string ResultsText(const Comparison& comparison, size_t width) {
  const size_t jobs = comparison.jobs.size();
  std::vector<Cells> rows = {Heads("RESULT", jobs)};
  if (jobs == 2) rows.front().push_back("CHANGE");
  for (const ComparedRow& row : comparison.results) {
    Cells cells = {ResultName(row.name)};
    for (const ordered_json& value : row.values) cells.push_back(ResultText(row.name, value));
    if (jobs == 2) cells.push_back(ChangeText(row));
    rows.push_back(std::move(cells));
  }
  return Section("Results", ColumnsText(rows, width));
}

std::string CausesText(const Comparison& comparison, size_t width) {
  if (comparison.seconds_by_cause.empty()) return "";
  std::vector<Cells> rows = {Heads("CAUSE", comparison.jobs.size())};
  for (const ComparedRow& row : comparison.seconds_by_cause) {
    Cells cells = {ResultName(row.name)};
    for (const ordered_json& value : row.values) {
      cells.push_back(value.is_null() ? "" : Elapsed(absl::Seconds(value.get<double>())));
    }
    rows.push_back(std::move(cells));
  }
  return Section("Time by cause", ColumnsText(rows, width));
}

std::string CurvesText(const Comparison& comparison, size_t width) {
  if (comparison.curves.empty()) return "";
  const size_t jobs = comparison.jobs.size();
  const auto table = [&](const char* title, auto values, const std::string& name) {
    std::vector<Cells> rows = {Heads("STEP", jobs)};
    bool any = false;
    for (const CurveRow& row : comparison.curves) {
      Cells cells = {Grouped(row.step)};
      for (const ordered_json& value : row.*values) {
        any = any || !value.is_null();
        cells.push_back(ResultText(name, value));
      }
      rows.push_back(std::move(cells));
    }
    return any ? Section(title, ColumnsText(rows, width)) : "";
  };
  return absl::StrCat(
      table("Loss at equal steps", &CurveRow::loss, "loss"),
      table("Test accuracy at equal steps", &CurveRow::test_accuracy, "test_accuracy"));
}

}  // namespace

std::vector<std::string> CutToWidth(absl::string_view text, size_t width) {
  const std::string printable = absl::StrReplaceAll(Printable(text), {{"\n", " "}, {"\t", " "}});
  absl::string_view rest = printable;
  std::vector<std::string> pieces;
  while (!rest.empty()) {
    size_t bytes = FittingBytes(rest, width);
    if (bytes < rest.size()) {
      const size_t cut = rest.substr(0, bytes).find_last_of(" ,/.");
      if (cut != absl::string_view::npos && cut + 1 > bytes / 2) bytes = cut + 1;
    }
    pieces.emplace_back(absl::StripTrailingAsciiWhitespace(rest.substr(0, bytes)));
    rest.remove_prefix(bytes);
    rest = absl::StripLeadingAsciiWhitespace(rest);
  }
  return pieces;
}

std::string ColumnsText(const std::vector<std::vector<std::string>>& rows, size_t width) {
  if (rows.empty() || rows.front().empty()) return "";
  const size_t columns = rows.front().size();
  const size_t most = columns <= 3 ? width / 2 : width * 2 / 5;
  std::vector<size_t> widths(columns, std::min(WidestCell(rows, 0), most));
  for (size_t i = 1; i < columns; ++i) {
    const size_t share = (width - widths[0]) / (columns - 1) - kGap;
    widths[i] = std::min(WidestCell(rows, i), share);
  }
  std::string out;
  for (const auto& row : rows) {
    std::vector<std::vector<std::string>> cells;
    size_t lines = 1;
    for (size_t i = 0; i < columns; ++i) {
      cells.push_back(CutToWidth(row[i].empty() ? "-" : row[i], widths[i]));
      lines = std::max(lines, cells.back().size());
    }
    for (size_t line = 0; line < lines; ++line) {
      std::string text;
      for (size_t i = 0; i < columns; ++i) {
        const std::string piece = line < cells[i].size() ? cells[i][line] : "";
        absl::StrAppend(&text, Padded(piece, widths[i]), std::string(kGap, ' '));
      }
      absl::StrAppend(&out, absl::StripTrailingAsciiWhitespace(text), "\n");
    }
  }
  return out;
}

std::string ComparisonText(const Comparison& comparison, bool with_equal, size_t width) {
  const size_t jobs = comparison.jobs.size();
  return absl::StrCat(
      JobsText(comparison, width),
      PropertiesText("Spec", "FIELD", comparison.spec, jobs, with_equal, width),
      PropertiesText("Environment", "PROPERTY", comparison.environment, jobs, with_equal, width),
      ResultsText(comparison, width), CausesText(comparison, width), CurvesText(comparison, width));
}

}  // namespace muster::cli
