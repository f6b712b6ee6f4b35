#include "cli/output/json.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/output/words.h"
#include "common/time/proto_time.h"
#include "nlohmann/json.hpp"
#include "spec/fields.h"
#include "spec/schema.h"

namespace muster::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

ordered_json NumberJson(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// The shortest decimal that reads back as this float, not the float's exact value.
ordered_json FloatJson(float value) {
  if (!std::isfinite(value)) return NumberJson(value);
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer) - 1, value);
  *result.ptr = '\0';
  return std::strtod(buffer, nullptr);
}

// Programs such as jq round larger numbers, so these are strings.
constexpr int64_t kMaxExact = int64_t{1} << 53;

ordered_json IntegerJson(int64_t value) {
  if (value > kMaxExact || value < -kMaxExact) return absl::StrCat(value);
  return value;
}

ordered_json IntegerJson(uint64_t value) {
  if (value > uint64_t{kMaxExact}) return absl::StrCat(value);
  return value;
}

std::string DurationSeconds(absl::Duration duration) {
  const int64_t nanos = absl::ToInt64Nanoseconds(duration);
  std::string text = absl::StrFormat("%s%d.%09d", nanos < 0 ? "-" : "",
                                     std::abs(nanos / 1000000000), std::abs(nanos % 1000000000));
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text + "s";
}

ordered_json MessageJson(const Message& message) {
  const std::string& type = message.GetDescriptor()->full_name();
  if (type == "google.protobuf.Timestamp") {
    const auto& time = static_cast<const google::protobuf::Timestamp&>(message);
    return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E*SZ", FromProto(time), absl::UTCTimeZone());
  }
  if (type == "google.protobuf.Duration") {
    const auto& duration = static_cast<const google::protobuf::Duration&>(message);
    return DurationSeconds(FromProto(duration));
  }
  return ToJson(message);
}

// One value of a field; for a repeated field, the one at `index`.
ordered_json ValueJson(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& r = *message.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? r.GetRepeatedInt32(message, &field, index) : r.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return IntegerJson(repeated ? r.GetRepeatedInt64(message, &field, index)
                                  : r.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? r.GetRepeatedUInt32(message, &field, index) : r.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t value =
          repeated ? r.GetRepeatedUInt64(message, &field, index) : r.GetUInt64(message, &field);
      const bool is_id = field.type() == FieldDescriptor::TYPE_FIXED64;
      return is_id ? ordered_json(HexId(value)) : IntegerJson(value);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberJson(repeated ? r.GetRepeatedDouble(message, &field, index)
                                 : r.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return FloatJson(repeated ? r.GetRepeatedFloat(message, &field, index)
                                : r.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? r.GetRepeatedBool(message, &field, index) : r.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = repeated ? r.GetRepeatedEnumValue(message, &field, index)
                                  : r.GetEnumValue(message, &field);
      if (!spec::FieldOf(field).words.empty()) return WordJson(spec::EnumText(field, number));
      const auto* value = field.enum_type()->FindValueByNumber(number);
      // A newer server may know more values.
      return value == nullptr ? ordered_json(number) : ordered_json(value->name());
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text =
          repeated ? r.GetRepeatedString(message, &field, index) : r.GetString(message, &field);
      return field.type() == FieldDescriptor::TYPE_BYTES ? absl::Base64Escape(text) : text;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageJson(repeated ? r.GetRepeatedMessage(message, &field, index)
                                  : r.GetMessage(message, &field));
  }
  return nullptr;
}

ordered_json MapJson(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  // Sorted, because the order of a protobuf map is unspecified.
  std::map<std::string, ordered_json> sorted;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    const ordered_json key = ValueJson(entry, *field.message_type()->map_key(), 0);
    sorted[key.is_string() ? key.get<std::string>() : key.dump()] =
        ValueJson(entry, *field.message_type()->map_value(), 0);
  }
  ordered_json object = ordered_json::object();
  for (auto& entry : sorted) object[entry.first] = std::move(entry.second);
  return object;
}

std::string DumpString(const std::string& text) {
  return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Whether YAML reads the unquoted text back as the same string.
bool IsPlainYaml(absl::string_view text) {
  if (text.empty() || !(absl::ascii_isalpha(text[0]) || text[0] == '/')) return false;
  for (const absl::string_view word :
       {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "NaN", "Infinity"}) {
    if (absl::EqualsIgnoreCase(text, word)) return false;
  }
  for (const char c : text) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.' && c != '/') return false;
  }
  return true;
}

std::string YamlScalar(const ordered_json& value) {
  if (!value.is_string()) return value.dump();
  const std::string text = value.get<std::string>();
  return IsPlainYaml(text) ? text : DumpString(text);
}

void AppendYaml(const ordered_json& value, const std::string& indent, std::string& out) {
  const auto append_child = [&](const ordered_json& child) {
    if (child.is_structured() && !child.empty()) {
      out += "\n";
      AppendYaml(child, indent + "  ", out);
    } else {
      absl::StrAppend(&out, " ", YamlScalar(child), "\n");
    }
  };
  if (value.is_object()) {
    for (const auto& entry : value.items()) {
      absl::StrAppend(&out, indent, YamlScalar(entry.key()), ":");
      append_child(entry.value());
    }
  } else if (value.is_array()) {
    for (const ordered_json& element : value) {
      absl::StrAppend(&out, indent, "-");
      append_child(element);
    }
  } else {
    absl::StrAppend(&out, indent, YamlScalar(value), "\n");
  }
}

}  // namespace

ordered_json WordJson(const std::string& word) {
  return word == "true" || word == "false" ? ordered_json(word == "true") : ordered_json(word);
}

ordered_json ToJson(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  ordered_json object = ordered_json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.is_repeated()) {
      const int size = reflection.FieldSize(message, &field);
      if (size == 0) continue;
      if (field.is_map()) {
        object[field.name()] = MapJson(message, field);
        continue;
      }
      ordered_json array = ordered_json::array();
      for (int k = 0; k < size; ++k) array.push_back(ValueJson(message, field, k));
      object[field.name()] = std::move(array);
      continue;
    }
    const bool optional = field.has_presence() || spec::ZeroMeansUnset(field);
    if (optional && !reflection.HasField(message, &field)) continue;
    object[field.name()] = ValueJson(message, field, 0);
  }
  return object;
}

ordered_json JobToJson(const v1::Job& job, bool with_losses) {
  if (with_losses || job.summary().losses().empty()) return ToJson(job);
  v1::Job without = job;
  without.mutable_summary()->clear_losses();
  return ToJson(without);
}

std::string JsonText(const ordered_json& value) {
  return value.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string YamlText(const ordered_json& value) {
  if (value.empty()) return YamlScalar(value) + "\n";
  std::string out;
  AppendYaml(value, "", out);
  return out;
}

}  // namespace muster::cli
