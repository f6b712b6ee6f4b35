#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/text/nearest.h"
#include "spec/rules/problems.h"
#include "spec/rules/rules.h"
#include "spec/spec.h"
#include "spec/yaml/overrides.h"
#include "spec/yaml/yaml_reader.h"
#include "yaml-cpp/yaml.h"

namespace muster::spec {
namespace {

absl::Status SizeError(absl::string_view source, size_t size_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      source, ": the spec is ", size_bytes, " bytes long; the limit is ", limits::kSpecBytes));
}

void ReadText(absl::string_view text, YamlReader& reader, v1::JobSpec& spec) {
  const YAML::Node document = LoadDocument(std::string(text), reader);
  if (!reader.status().ok()) return;
  if (document.IsNull()) {
    reader.AddError(YAML::Mark::null_mark(), "the spec is empty");
  } else {
    reader.ReadMessage(document, "", spec);
  }
}

// The fields of a spec that could be read, and the errors in the others.
struct Reading {
  v1::JobSpec spec;
  std::vector<std::string> errors;
  UnreadFields unread;
  absl::Status unreadable;  // set if the spec itself could not be read

  absl::Status status() const {
    if (!unreadable.ok()) return unreadable;
    if (errors.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
  }
};

// Runs `read` and adds its errors. `path` is the field that is read; empty if it is the whole spec.
void ReadInto(const std::string& path, Reading& reading, YamlReader& reader,
              absl::FunctionRef<void()> read) {
  const bool completed = CatchYamlErrors(reader, read);
  const absl::Status status = reader.status();
  if (status.ok()) return;
  if ((!completed && path.empty()) || !absl::IsInvalidArgument(status)) {
    reading.unreadable.Update(status);
  } else {
    reading.errors.push_back(std::string(status.message()));
  }
  if (!completed && !path.empty()) reading.unread.paths.push_back(path);
  const UnreadFields& unread = reader.unread();
  absl::c_copy(unread.paths, std::back_inserter(reading.unread.paths));
  absl::c_copy(unread.sections, std::back_inserter(reading.unread.sections));
}

absl::Status CheckText(absl::string_view text, absl::string_view source) {
  if (text.size() > limits::kSpecBytes) return SizeError(source, text.size());
  // yaml-cpp accepts some invalid UTF-8, but a protobuf string cannot contain it.
  if (!IsUtf8(text)) return absl::InvalidArgumentError(absl::StrCat(source, ": is not UTF-8"));
  if (text.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": contains a NUL character"));
  }
  return absl::OkStatus();
}

void ReadOverrideText(const std::string& text, Reading& reading) {
  const std::string source = absl::StrCat("--set ", Quoted(text));
  const bool too_long = text.size() > limits::kSpecBytes;
  const absl::Status valid = too_long ? SizeError("--set", text.size()) : CheckText(text, source);
  if (!valid.ok()) return reading.unreadable.Update(valid);
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (parts.size() != 2 || parts[0].empty()) {
    reading.errors.push_back(absl::StrCat(source, ": expected field=value, as in train.epochs=3"));
    return;
  }
  YamlReader reader(source, /*with_lines=*/false);
  ReadInto(parts[0], reading, reader,
           [&] { ReadOverride(parts[0], parts[1], reader, reading.spec); });
}

Reading Read(absl::string_view text, absl::string_view source,
             absl::Span<const std::string> overrides) {
  Reading reading;
  reading.unreadable = CheckText(text, source);
  if (!reading.unreadable.ok()) return reading;
  YamlReader reader(source, /*with_lines=*/true);
  ReadInto("", reading, reader, [&] { ReadText(text, reader, reading.spec); });
  for (const std::string& override_text : overrides) {
    if (reading.unreadable.ok()) ReadOverrideText(override_text, reading);
  }
  const size_t size_bytes = reading.spec.ByteSizeLong();
  if (size_bytes > limits::kSpecBytes) reading.unreadable.Update(SizeError(source, size_bytes));
  return reading;
}

}  // namespace

absl::StatusOr<v1::JobSpec> Parse(absl::string_view text, absl::string_view source,
                                  absl::Span<const std::string> overrides) {
  Reading reading = Read(text, source, overrides);
  RETURN_IF_ERROR(reading.status());
  return std::move(reading.spec);
}

absl::StatusOr<v1::JobSpec> ParseReportingAll(absl::string_view text, absl::string_view source,
                                              absl::Span<const std::string> overrides,
                                              Amendment amend) {
  Reading reading = Read(text, source, overrides);
  if (!reading.unreadable.ok()) return reading.unreadable;
  absl::Status amended;
  for (const absl::Status& error : amend(reading.spec)) {
    if (error.ok()) continue;
    amended.Update(error);
    reading.errors.push_back(std::string(error.message()));
  }
  if (reading.errors.empty()) return std::move(reading.spec);
  SetFirstValues(reading.spec);
  ApplyDefaults(reading.spec);
  Problems problems;
  CheckSpec(reading.spec, problems);
  absl::c_move(problems.LinesBesides(reading.unread), std::back_inserter(reading.errors));
  return reading.errors.size() == 1 && !amended.ok() ? amended : reading.status();
}

}  // namespace muster::spec
