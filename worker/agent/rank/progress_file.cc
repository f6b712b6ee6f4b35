#include "worker/agent/rank/progress_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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
#include "common/files/owned_fd.h"
#include "common/limits.h"
#include "common/text/utf8.h"
#include "common/time/proto_time.h"
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

constexpr uint64_t kReadBytes = 256 << 10;
constexpr size_t kLineBytes = 4096;
// Longer estimates are omitted: programs without an end write a huge total_steps.
constexpr double kLongestEstimateSeconds = 365.0 * 24 * 3600;

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

std::optional<v1::Progress> ProgressFile::Read(Time now) {
  const std::string bytes = NewBytes();
  bool any = false;
  for (const absl::string_view piece : absl::StrSplit(bytes, absl::ByChar('\n'))) {
    const bool last = piece.data() + piece.size() == bytes.data() + bytes.size();
    if (!skipping_) partial_line_.append(piece.data(), piece.size());
    if (partial_line_.size() > kLineBytes) {
      Warn(absl::StrCat("is longer than ", kLineBytes, " bytes; write shorter lines"));
      skipping_ = true;
      partial_line_.clear();
    }
    if (last) break;  // incomplete line
    any |= TakeLine();
  }
  if (!any) return std::nullopt;
  Date(now);
  return progress_;
}

bool ProgressFile::TakeLine() {
  ProgressLine line;
  if (!skipping_) line = ApplyProgressLine(partial_line_, progress_);
  if (!line.problem.empty()) Warn(line.problem);
  if (line.applied) NoteLoss();
  partial_line_.clear();
  skipping_ = false;
  if (line_number_.has_value()) ++*line_number_;
  return line.applied;
}

void ProgressFile::NoteLoss() {
  const bool was_finite = std::exchange(loss_is_finite_, std::isfinite(progress_.loss()));
  if (loss_is_finite_ || !was_finite) return;
  if (progress_.loss_anomalies_size() == limits::kLossAnomalies) return;
  v1::LossAnomaly& anomaly = *progress_.add_loss_anomalies();
  anomaly.set_step(progress_.step());
  anomaly.set_loss(progress_.loss());
}

void ProgressFile::Warn(absl::string_view problem) {
  if (std::exchange(warned_, true)) return;
  const std::string line =
      line_number_.has_value() ? absl::StrCat("line ", *line_number_) : "a line";
  warning_ = absl::StrCat("MUSTER_PROGRESS: ", line, " ", problem);
}

std::string ProgressFile::NewBytes() {
  // The program may have replaced the file by a pipe or a device.
  const OwnedFd file(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat status = {};
  std::string bytes;
  if (fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
      (!uid_.has_value() || status.st_uid == *uid_)) {
    const auto size = static_cast<uint64_t>(status.st_size);
    if (size < offset_) {
      // The file was truncated.
      offset_ = 0;
      line_number_ = 1;
      partial_line_.clear();
      skipping_ = false;
    }
    if (size - offset_ > kReadBytes) {
      offset_ = size - kReadBytes;
      line_number_.reset();
      partial_line_.clear();
      skipping_ = true;
    }
    bytes.resize(size - offset_);
    const ssize_t n = pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset_));
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    offset_ += bytes.size();
  }
  return bytes;
}

void ProgressFile::Date(Time now) {
  if (progress_.step() == 0) return;
  if (progress_.phase().empty()) progress_.set_phase("training");
  if (!progress_.has_first_step_time()) *progress_.mutable_first_step_time() = ToProto(now.wall);
  if (!first_seen_.has_value() || progress_.step() < first_step_) {
    first_seen_ = now.steady;
    first_step_ = progress_.step();
  }
  progress_.clear_time_left();
  if (progress_.step() > first_step_ && progress_.total_steps() >= progress_.step()) {
    const double pace = absl::ToDoubleSeconds(now.steady - *first_seen_) /
                        static_cast<double>(progress_.step() - first_step_);
    const auto left = static_cast<double>(progress_.total_steps() - progress_.step());
    if (pace * left > kLongestEstimateSeconds) return;
    *progress_.mutable_time_left() = ToProto(absl::Seconds(pace * left));
  }
}

}  // namespace muster::agent
