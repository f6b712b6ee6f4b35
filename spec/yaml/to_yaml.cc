#include "spec/yaml/to_yaml.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/time/proto_time.h"
#include "spec/fields.h"
#include "spec/schema.h"
#include "spec/spec.h"
#include "spec/units.h"

namespace muster::spec {
namespace {

constexpr size_t kLineLength = 100;

bool IsPlain(absl::string_view text) {
  if (text.empty() || text == "true" || text == "false" || text == "null" || text == "Null" ||
      text == "NULL") {
    return false;
  }
  if (!absl::ascii_isalnum(text[0]) && text[0] != '/' && text[0] != '.' && text[0] != '_') {
    return false;
  }
  for (const char c : text) {
    const bool plain = absl::ascii_isalnum(c) || c == '/' || c == '.' || c == '_' || c == '+' ||
                       c == '=' || c == '-';
    if (!plain) return false;
  }
  return true;
}

// The text as a plain scalar if possible, otherwise double-quoted.
std::string Scalar(absl::string_view text) {
  if (IsPlain(text)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    const unsigned char byte = c;
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", absl::string_view(&c, 1));
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&quoted, "\\x%02x", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// The shortest text that parses to the same value.
template <typename T>
std::string Number(T value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

// The message in flow style: {a: b, c: d}.
std::string Flow(const Message& message) {
  std::vector<std::string> parts;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (IsShown(message, field)) {
      parts.push_back(absl::StrCat(field.name(), ": ", ValueText(message, field)));
    }
  }
  return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
}

// A layer's name if it has no options, otherwise its name and options in flow style.
std::string LayerText(const Message& layer) {
  std::vector<const FieldDescriptor*> kinds;
  layer.GetReflection()->ListFields(layer, &kinds);
  if (kinds.size() == 1 && kinds[0]->message_type()->field_count() == 0) return kinds[0]->name();
  return Flow(layer);
}

// A file's path if nothing else is set, otherwise its fields in flow style.
std::string FileText(const Message& file) {
  std::vector<const FieldDescriptor*> set;
  file.GetReflection()->ListFields(file, &set);
  return set.size() == 1 ? ScalarText(file, *set[0], 0) : Flow(file);
}

// A value as in `--set FIELD=value`. A list or map is already in flow style, as is a string that
// would read as one.
std::string OverrideText(const std::string& value) {
  const bool flow = !value.empty() && absl::StrContains("{[\"'", value[0]);
  return flow ? value : Scalar(value);
}

// A field's path and the values that it takes.
std::string AxisText(const Message& item) {
  const auto& axis = static_cast<const v1::ArrayAxis&>(item);
  std::vector<std::string> values;
  for (const std::string& value : axis.values()) values.push_back(OverrideText(value));
  return absl::StrCat(Scalar(axis.field()), ": [", absl::StrJoin(values, ", "), "]");
}

// The values of a task: {train.epochs: 1}.
std::string TaskText(const Message& item) {
  const auto& task = static_cast<const v1::ArrayTaskValues&>(item);
  std::vector<std::string> parts;
  for (const v1::ArrayValue& value : task.values()) {
    parts.push_back(absl::StrCat(Scalar(value.field()), ": ", OverrideText(value.value())));
  }
  return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
}

// An element of a list of layers, files or tasks, or of a matrix.
std::string ItemText(const FieldDescriptor& field, const Message& item) {
  if (FormOf(field) == FieldForm::kMatrix) return AxisText(item);
  if (FormOf(field) == FieldForm::kTaskValues) return TaskText(item);
  return FormOf(field) == FieldForm::kFile ? FileText(item) : LayerText(item);
}

// "NAME: value" for each entry of a map<string, string>, in order; values as {secret: value} if
// `secret`.
void AppendEntries(const Message& message, const FieldDescriptor& field, bool secret,
                   std::vector<std::string>& parts) {
  const Reflection& reflection = *message.GetReflection();
  const size_t first = parts.size();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const std::string value = ScalarText(entry, *field.message_type()->map_value(), 0);
    parts.push_back(absl::StrCat(ScalarText(entry, *field.message_type()->map_key(), 0), ": ",
                                 secret ? absl::StrCat("{secret: ", value, "}") : value));
  }
  std::sort(parts.begin() + first, parts.end());
}

// The spec's secret_env, which is written as a part of `env`.
const FieldDescriptor& SecretEnv() {
  return *v1::JobSpec::descriptor()->FindFieldByNumber(v1::JobSpec::kSecretEnvFieldNumber);
}

// Appends one line per element of a list of layers, files or tasks, or of a matrix.
void AppendItems(const Message& message, const FieldDescriptor& field, const std::string& indent,
                 std::string& out) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    absl::StrAppend(&out, indent, FormOf(field) == FieldForm::kMatrix ? "" : "- ",
                    ItemText(field, reflection.GetRepeatedMessage(message, &field, i)), "\n");
  }
}

// Appends one line per field; sections and lists of messages that do not fit become blocks.
void AppendBlock(const Message& message, const std::string& indent, std::string& out) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (!IsShown(message, field)) continue;
    const bool nests = field.message_type() == v1::TrainSpec::descriptor();
    const std::string line =
        nests ? "" : absl::StrCat(indent, field.name(), ": ", ValueText(message, field));
    const bool has_block =
        field.message_type() != nullptr && !field.is_map() && FormOf(field) == FieldForm::kPlain;
    const FieldForm form = FormOf(field);
    const bool has_items = form == FieldForm::kLayer || form == FieldForm::kFile ||
                           form == FieldForm::kMatrix || form == FieldForm::kTaskValues;
    if (has_items && line.size() > kLineLength) {
      absl::StrAppend(&out, indent, field.name(), ":\n");
      AppendItems(message, field, indent + "  ", out);
    } else if (nests || (has_block && line.size() > kLineLength)) {
      absl::StrAppend(&out, indent, field.name(), ":\n");
      AppendBlock(message.GetReflection()->GetMessage(message, &field), indent + "  ", out);
    } else {
      absl::StrAppend(&out, line, "\n");
    }
  }
}

}  // namespace

std::string ScalarText(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return Scalar(repeated ? reflection.GetRepeatedString(message, &field, index)
                             : reflection.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(field, reflection.GetEnumValue(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(repeated ? reflection.GetRepeatedDouble(message, &field, index)
                             : reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(repeated ? reflection.GetRepeatedFloat(message, &field, index)
                             : reflection.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(repeated ? reflection.GetRepeatedUInt32(message, &field, index)
                                   : reflection.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t value = reflection.GetUInt64(message, &field);
      return FormOf(field) == FieldForm::kSize ? SizeText(value) : absl::StrCat(value);
    }
    default:
      return "";
  }
}

bool IsShown(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (&field == &SecretEnv()) return false;
  if (FormOf(field) == FieldForm::kEnvironment && IsSet(message, SecretEnv())) return true;
  if (field.is_repeated()) return reflection.FieldSize(message, &field) > 0;
  if (field.has_presence()) return reflection.HasField(message, &field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING || ZeroMeansUnset(field)) {
    return reflection.HasField(message, &field);
  }
  return true;
}

std::string ValueText(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (field.is_map()) {
    std::vector<std::string> parts;
    AppendEntries(message, field, /*secret=*/false, parts);
    if (FormOf(field) == FieldForm::kEnvironment) {
      AppendEntries(message, SecretEnv(), /*secret=*/true, parts);
    }
    return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
  }
  if (field.is_repeated()) {
    std::vector<std::string> parts;
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      parts.push_back(field.message_type() != nullptr
                          ? ItemText(field, reflection.GetRepeatedMessage(message, &field, i))
                          : ScalarText(message, field, i));
    }
    const bool matrix = FormOf(field) == FieldForm::kMatrix;
    return absl::StrCat(matrix ? "{" : "[", absl::StrJoin(parts, ", "), matrix ? "}" : "]");
  }
  if (field.message_type() == nullptr) return ScalarText(message, field, 0);
  const Message& child = reflection.GetMessage(message, &field);
  switch (FormOf(field)) {
    case FieldForm::kDuration: {
      const auto& duration = static_cast<const google::protobuf::Duration&>(child);
      const absl::string_view word = FieldOf(field).zero_word;
      if (!word.empty() && FromProto(duration) == absl::ZeroDuration()) return std::string(word);
      return DurationText(FromProto(duration));
    }
    case FieldForm::kNodeCount: {
      const auto& count = static_cast<const v1::NodeCount&>(child);
      return count.min() == count.max() ? absl::StrCat(count.min()) : Flow(child);
    }
    case FieldForm::kLostCoordinator: {
      const auto& policy = static_cast<const v1::LostCoordinatorPolicy&>(child);
      return policy.has_stop_after() ? Flow(child) : "continue";
    }
    case FieldForm::kLayer:
    case FieldForm::kFile:
    case FieldForm::kSize:
    case FieldForm::kEnvironment:
    case FieldForm::kMatrix:
    case FieldForm::kTaskValues:
    case FieldForm::kPlain:
      return Flow(child);
  }
  return "";
}

std::string ToYaml(const v1::JobSpec& spec) {
  std::string out;
  AppendBlock(spec, "", out);
  return out;
}

}  // namespace muster::spec
