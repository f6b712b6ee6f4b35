#include <exception>
#include <iterator>
#include <sstream>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "common/nearest.h"
#include "common/status.h"
#include "spec/problems.h"
#include "spec/rules.h"
#include "spec/schema.h"
#include "spec/spec.h"
#include "spec/utf8.h"
#include "spec/yaml_reader.h"
#include "yaml-cpp/depthguard.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/yaml.h"

namespace muster::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status SizeError(absl::string_view source, size_t size_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      source, ": the spec is ", size_bytes, " bytes long; the limit is ", limits::kSpecBytes));
}

// An event handler that builds nothing and only records where the latest document begins.
class DocumentCounter : public YAML::EventHandler {
 public:
  const YAML::Mark& last_start() const { return last_start_; }

  void OnDocumentStart(const YAML::Mark& mark) override { last_start_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  YAML::Mark last_start_;
};

// The single document of `text`; null, with an error added, if there are several. YAML::LoadAll
// cannot be used: after a stray bracket it returns empty documents without end. YAML::Load alone
// ignores everything after the first document.
YAML::Node LoadDocument(const std::string& text, YamlReader& reader) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentCounter counter;
  if (!parser.HandleNextDocument(counter)) return YAML::Node();
  if (parser.HandleNextDocument(counter)) {
    reader.AddError(counter.last_start(), "a second YAML document begins here; expected only one");
    return YAML::Node();
  }
  return YAML::Load(text);
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

// Reads `value` into the field at `path`.
void ReadOverride(absl::string_view path, absl::string_view value, YamlReader& reader,
                  v1::JobSpec& spec) {
  const YAML::Node node = LoadDocument(std::string(value), reader);
  if (!reader.status().ok()) return;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  Message* message = &spec;
  std::string where;
  for (size_t i = 0; i < names.size(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(names[i]);
    if (field == nullptr) {
      return reader.AddUnknownField(YAML::Mark::null_mark(), *message->GetDescriptor(), where,
                                    names[i]);
    }
    where = JoinPath(where, names[i]);
    if (i + 1 == names.size()) {
      // `a.b=` clears the field, so that its default applies.
      if (value.empty()) return message->GetReflection()->ClearField(message, field);
      // YAML's other words for nothing, such as ~, are the text that a shell did not expand.
      const bool text = node.IsNull() && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
      return reader.ReadField(text ? YAML::Node(std::string(value)) : node, where, *field,
                              *message);
    }
    if (field->is_map()) {
      // The rest of the path, including dots, is the key.
      const std::string key(path.substr(where.size() + 1));
      return reader.ReadMapEntry(key, node.IsNull() ? YAML::Node(std::string()) : node, where,
                                 *field, *message);
    }
    if (field->is_repeated()) {
      reader.AddError(YAML::Mark::null_mark(),
                      absl::StrCat(where, " is a list; set it as a whole: ", where, "=[…]"));
      return;
    }
    if (field->message_type() == nullptr || FormOf(*field) == FieldForm::kDuration) {
      reader.AddError(YAML::Mark::null_mark(),
                      absl::StrCat(where, " has no fields; unknown path ", Quoted(path)));
      return;
    }
    message = message->GetReflection()->MutableMessage(message, field);
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

// Runs `read` and adds its errors, exceptions of yaml-cpp among them. `path` is the field that is
// read; empty if it is the whole spec.
template <typename Read>
void ReadInto(const std::string& path, Reading& reading, YamlReader& reader, Read read) {
  bool exception = true;
  try {
    read();
    exception = false;
  } catch (const YAML::DeepRecursion& error) {
    reader.AddError(error.mark, "nested too deeply");
  } catch (const YAML::Exception& error) {
    reader.AddError(error.mark, absl::StrCat("not YAML: ", error.msg));
  } catch (const std::exception& error) {
    reader.AddError(YAML::Mark::null_mark(), error.what());
  }
  const absl::Status status = reader.status();
  if (status.ok()) return;
  if ((exception && path.empty()) || !absl::IsInvalidArgument(status)) {
    reading.unreadable.Update(status);
  } else {
    reading.errors.push_back(std::string(status.message()));
  }
  if (exception && !path.empty()) reading.unread.paths.push_back(path);
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
  ApplyDefaults(reading.spec);
  Problems problems;
  CheckSpec(reading.spec, problems);
  absl::c_move(problems.LinesBesides(reading.unread), std::back_inserter(reading.errors));
  return reading.errors.size() == 1 && !amended.ok() ? amended : reading.status();
}

}  // namespace muster::spec
