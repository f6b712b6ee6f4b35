#include "worker/agent/rank/progress_line.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/utf8.h"
#include "nlohmann/json.hpp"

namespace muster::agent {
namespace {

constexpr size_t kPhaseBytes = 64;
constexpr size_t kShownBytes = 80;

struct Count {
  absl::string_view key;
  void (v1::Progress::*set)(uint64_t);
};
constexpr Count kCounts[] = {{"step", &v1::Progress::set_step},
                             {"total_steps", &v1::Progress::set_total_steps},
                             {"samples", &v1::Progress::set_samples}};

struct Number {
  absl::string_view key;
  void (v1::Progress::*set)(double);
};
constexpr absl::string_view kLoss = "loss";
constexpr Number kNumbers[] = {{"epoch", &v1::Progress::set_epoch},
                               {kLoss, &v1::Progress::set_loss},
                               {"learning_rate", &v1::Progress::set_learning_rate},
                               {"images_per_second", &v1::Progress::set_images_per_second},
                               {"test_accuracy", &v1::Progress::set_test_accuracy}};
constexpr char kKeys[] =
    "step, total_steps, samples, epoch, loss, learning_rate, images_per_second, test_accuracy and "
    "phase";

// A key and the text of its value.
using Pair = std::pair<std::string, std::string>;

// Printable, and short enough for a message.
std::string Shown(absl::string_view bytes) {
  std::string text = ToUtf8(bytes);
  const bool is_long = text.size() > kShownBytes;
  KeepFirst(kShownBytes, text);
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text), is_long ? "…" : "", "\"");
}

// Applies a pair. Returns false if the key is unknown; sets `problem` if the value is invalid.
bool Apply(const Pair& pair, v1::Progress& progress, ProgressLine& result) {
  const std::string& key = pair.first;
  const std::string& value = pair.second;
  const auto invalid = [&](absl::string_view remedy) {
    result.problem = absl::StrCat("has an invalid value: ", key, "=", Shown(value), "; ", remedy);
    return true;
  };
  for (const Count& count : kCounts) {
    if (key != count.key) continue;
    uint64_t number = 0;
    if (!absl::SimpleAtoi(value, &number)) return invalid("write a whole number");
    (progress.*count.set)(number);
    return result.applied = true;
  }
  for (const Number& field : kNumbers) {
    if (key != field.key) continue;
    double number = 0;
    // The loss of diverged training is not finite.
    const bool valid = absl::SimpleAtod(value, &number) &&
                       (key == kLoss || (std::isfinite(number) && number >= 0));
    if (!valid) return invalid("write a number");
    (progress.*field.set)(number);
    return result.applied = true;
  }
  if (key != "phase") return false;
  if (value.empty()) return invalid("write a word");
  std::string phase = ToUtf8(value);
  KeepFirst(kPhaseBytes, phase);
  progress.set_phase(std::move(phase));
  return result.applied = true;
}

// Puts the words NaN, Infinity and -Infinity between quotation marks. Python's json module writes
// them as numbers, which JSON does not have.
std::string QuoteNonFinite(absl::string_view line) {
  std::string quoted;
  bool in_string = false;
  while (!line.empty()) {
    size_t size = 1;
    if (in_string && line[0] == '\\') size = std::min<size_t>(2, line.size());
    if (line[0] == '"') in_string = !in_string;
    absl::string_view word;
    for (const absl::string_view name : {"NaN", "Infinity", "-Infinity"}) {
      if (!in_string && absl::StartsWith(line, name)) word = name;
    }
    if (word.empty()) {
      absl::StrAppend(&quoted, line.substr(0, size));
    } else {
      size = word.size();
      absl::StrAppend(&quoted, "\"", word, "\"");
    }
    line.remove_prefix(size);
  }
  return quoted;
}

// The pairs of a JSON object, without nulls. Returns false if the line is not one.
bool ParseJson(absl::string_view line, std::vector<Pair>& pairs) {
  const auto object = nlohmann::json::parse(QuoteNonFinite(line), nullptr,
                                            /*allow_exceptions=*/false);
  if (!object.is_object()) return false;
  for (const auto& [key, value] : object.items()) {
    if (value.is_null()) continue;
    pairs.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return true;
}

bool ParseWords(absl::string_view line, std::vector<Pair>& pairs) {
  for (const absl::string_view word :
       absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
    const size_t equals = word.find('=');
    if (equals == absl::string_view::npos || equals == 0) continue;
    pairs.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return !pairs.empty();
}

}  // namespace

ProgressLine ApplyProgressLine(absl::string_view line, v1::Progress& progress) {
  ProgressLine result;
  line = absl::StripAsciiWhitespace(line);
  if (line.empty()) return result;
  std::vector<Pair> pairs;
  if (!(line[0] == '{' ? ParseJson(line, pairs) : ParseWords(line, pairs))) {
    result.problem = absl::StrCat("is not understood: ", Shown(line),
                                  "; write key=value pairs or a JSON object per line");
    return result;
  }
  bool any_known = false;
  for (const Pair& pair : pairs) any_known |= Apply(pair, progress, result);
  if (!any_known) {
    result.problem = absl::StrCat("has no known key: ", Shown(line), "; the keys are ", kKeys);
  }
  return result;
}

}  // namespace muster::agent
