#include "spec/yaml/yaml_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <type_traits>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/text/nearest.h"
#include "common/time/proto_time.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/fields.h"
#include "spec/schema.h"
#include "spec/units.h"

namespace muster::spec {
namespace {

// Bytes that each layer counts towards the size limit: approximately its size in memory.
constexpr size_t kLayerBytes = 64;

bool ReadFloating(const std::string& text, double& value) { return absl::SimpleAtod(text, &value); }
bool ReadFloating(const std::string& text, float& value) { return absl::SimpleAtof(text, &value); }

// INVALID_ARGUMENT names the expected type and bounds.
template <typename T>
absl::StatusOr<T> ParseNumber(const std::string& text, bool zero_allowed) {
  const std::string or_more = zero_allowed ? "" : " (above 0)";
  T value;
  if constexpr (std::is_floating_point_v<T>) {
    if (!ReadFloating(text, value) || !std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat("expected a number", or_more));
    }
  } else if (!absl::SimpleAtoi(text, &value)) {
    // The bounds are shown only for integers that exceed them.
    double number;
    if (absl::SimpleAtod(text, &number) && number == std::floor(number)) {
      return absl::InvalidArgumentError(absl::StrCat("expected an integer from ",
                                                     std::numeric_limits<T>::min(), " to ",
                                                     std::numeric_limits<T>::max()));
    }
    return absl::InvalidArgumentError(absl::StrCat("expected an integer", or_more));
  }
  if (value == 0 && !zero_allowed) {
    return absl::InvalidArgumentError("expected a number above 0");
  }
  return value;
}

// "expected fields", with the message's first field as an example.
std::string ExpectedFields(const Descriptor& message) {
  if (message.field_count() == 0) return "expected no fields";
  return absl::StrCat("expected fields, as in {", message.field(0)->name(), ": …}");
}

}  // namespace

absl::string_view KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a map";
    case YAML::NodeType::Null:
    case YAML::NodeType::Undefined:
      return "nothing";
    case YAML::NodeType::Scalar:
      break;
  }
  return "a value";
}

std::string Found(const YAML::Node& node) {
  return node.IsScalar() ? Quoted(node.Scalar()) : std::string(KindOf(node));
}

void YamlReader::AddErrorText(const YAML::Mark& mark, absl::string_view text) {
  if (errors_.size() > kErrors) return;
  if (errors_.size() == kErrors) {
    errors_.push_back(absl::StrCat(source_, ": further errors omitted"));
    return;
  }
  errors_.push_back(with_lines_ && !mark.is_null()
                        ? absl::StrCat(source_, ":", mark.line + 1, ": ", text)
                        : absl::StrCat(source_, ": ", text));
}

absl::Status YamlReader::status() const {
  if (errors_.empty()) return absl::OkStatus();
  const std::string text = absl::StrJoin(errors_, "\n");
  return too_large_ ? absl::ResourceExhaustedError(text) : absl::InvalidArgumentError(text);
}

void YamlReader::ReadMessage(const YAML::Node& node, const std::string& where, Message& message) {
  const auto& descriptor = *message.GetDescriptor();
  if (!node.IsMap()) {
    AddError(node.Mark(), where.empty() ? "the spec" : where, ": ", ExpectedFields(descriptor),
             ", found ", Found(node));
    return;
  }
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (done()) return;
    if (!entry.first.IsScalar()) {
      AddError(entry.first.Mark(), where.empty() ? "the spec" : where,
               ": a field's name cannot be ", Found(entry.first));
      continue;
    }
    const std::string& name = entry.first.Scalar();
    const FieldDescriptor* field = descriptor.FindFieldByName(name);
    if (field == nullptr) {
      AddUnknownField(entry.first.Mark(), descriptor, where, name);
      continue;
    }
    const std::string path = JoinPath(where, name);
    if (!seen.insert(name).second) {
      AddError(entry.first.Mark(), path, " is given twice");
      continue;
    }
    ReadField(entry.second, path, *field, message);
  }
}

void YamlReader::AddUnknownField(const YAML::Mark& mark, const Descriptor& message,
                                 const std::string& where, absl::string_view name) {
  AddError(mark, UnknownField(message, where, name));
  unread_.sections.push_back(where);
  const std::string meant = MeantField(message, where, name);
  if (!meant.empty() && read_.count(meant) == 0) unread_.paths.push_back(meant);
}

void YamlReader::ReadField(const YAML::Node& node, const std::string& where,
                           const FieldDescriptor& field, Message& message) {
  const size_t errors = errors_.size();
  const size_t inner = unread_.paths.size() + unread_.sections.size();
  ReadValue(node, where, field, message);
  const bool deeper = unread_.paths.size() + unread_.sections.size() > inner;
  if (errors_.size() == errors) {
    read_.insert(where);
    std::erase(unread_.paths, where);  // not meant by a misspelling, after all
  } else if (!deeper) {
    unread_.paths.push_back(where);
  }
}

void YamlReader::ReadValue(const YAML::Node& node, const std::string& where,
                           const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  // The secrets of `env` may already be in secret_env.
  if (field.name() != "secret_env") reflection.ClearField(&message, &field);
  if (field.is_map()) return ReadMap(node, where, field, message);
  if (FormOf(field) == FieldForm::kMatrix) return ReadMatrix(node, where, field, message);
  if (field.is_repeated()) return ReadRepeated(node, where, field, message);
  if (field.message_type() == nullptr) return ReadNumberOrText(node, where, field, message);
  // A section that contains only comments counts as absent.
  if (node.IsNull() && FormOf(field) == FieldForm::kPlain) return;
  Message& child = *reflection.MutableMessage(&message, &field);
  switch (FormOf(field)) {
    case FieldForm::kDuration:
      return ReadDuration(node, where, field, child);
    case FieldForm::kNodeCount:
      return ReadNodeCount(node, where, child);
    case FieldForm::kLostCoordinator:
      return ReadLostCoordinator(node, where, child);
    case FieldForm::kLayer:
      return ReadLayer(node, where, child);
    case FieldForm::kFile:
      return ReadFile(node, where, child);
    case FieldForm::kSize:
    case FieldForm::kEnvironment:
    case FieldForm::kMatrix:
    case FieldForm::kTaskValues:
    case FieldForm::kPlain:
      return ReadMessage(node, where, child);
  }
}

void YamlReader::ReadRepeated(const YAML::Node& node, const std::string& where,
                              const FieldDescriptor& field, Message& message) {
  if (node.IsNull()) return;
  if (!node.IsSequence()) {
    AddError(node.Mark(), where, ": expected a list, as in [a, b], found ", Found(node));
    return;
  }
  for (size_t i = 0; i < node.size() && !done(); ++i) {
    const std::string element = absl::StrCat(where, "[", i, "]");
    if (FormOf(field) == FieldForm::kLayer) {
      ReadLayer(node[i], element, *message.GetReflection()->AddMessage(&message, &field));
    } else if (FormOf(field) == FieldForm::kFile) {
      ReadFile(node[i], element, *message.GetReflection()->AddMessage(&message, &field));
    } else if (FormOf(field) == FieldForm::kTaskValues) {
      ReadTaskValues(node[i], element, *message.GetReflection()->AddMessage(&message, &field));
    } else {
      ReadNumberOrText(node[i], element, field, message);
    }
  }
}

void YamlReader::ReadLayer(const YAML::Node& node, const std::string& where, Message& layer) {
  const auto& descriptor = *layer.GetDescriptor();
  if (!Count(node.Mark(), kLayerBytes)) return;
  if (layer_depth_ == kLayerDepth) {
    return AddError(node.Mark(), where, ": layers are nested more than ", kLayerDepth, " deep");
  }
  const bool one_field = node.IsMap() && node.size() == 1 && node.begin()->first.IsScalar();
  if (!node.IsScalar() && !one_field) {
    const std::string found = node.IsMap() ? absl::StrCat(node.size(), " fields") : Found(node);
    return AddError(node.Mark(), where, ": expected one layer, as in relu or {conv2d: {…}}, found ",
                    found);
  }
  const std::string word = node.IsScalar() ? node.Scalar() : node.begin()->first.Scalar();
  const FieldDescriptor* kind = descriptor.FindFieldByName(word);
  if (kind == nullptr) {
    return AddError(node.Mark(), where, ": unknown layer ", Quoted(word),
                    DidYouMean(word, FieldNames(descriptor)));
  }
  Message& options = *layer.GetReflection()->MutableMessage(&layer, kind);
  // A name without options, in either form, is a layer with its defaults.
  if (node.IsScalar() || node.begin()->second.IsNull()) return;
  ++layer_depth_;
  ReadMessage(node.begin()->second, JoinPath(where, word), options);
  --layer_depth_;
}

void YamlReader::ReadFile(const YAML::Node& node, const std::string& where, Message& file) {
  if (node.IsMap()) return ReadMessage(node, where, file);
  std::string path;
  if (!ReadScalar(node, where, "a path, as in train.py", path)) return;
  file.GetReflection()->SetString(&file, file.GetDescriptor()->FindFieldByName("path"), path);
}

void YamlReader::ReadDuration(const YAML::Node& node, const std::string& where,
                              const FieldDescriptor& field, Message& duration) {
  std::string text;
  if (!ReadScalar(node, where, "a duration such as 90s or 10m", text)) return;
  if (!text.empty() && text == FieldOf(field).zero_word) return duration.Clear();
  const absl::StatusOr<absl::Duration> parsed = ParseDuration(text);
  if (!parsed.ok()) {
    AddError(node.Mark(), where, ": ", parsed.status().message());
    return;
  }
  duration.CopyFrom(ToProto(*parsed));
}

void YamlReader::ReadNodeCount(const YAML::Node& node, const std::string& where, Message& count) {
  if (!node.IsScalar()) return ReadMessage(node, where, count);
  std::string text;
  if (!ReadScalar(node, where, "a number", text)) return;
  const absl::StatusOr<uint32_t> number = ParseNumber<uint32_t>(text, /*zero_allowed=*/false);
  if (!number.ok()) {
    AddError(node.Mark(), where, ": ", number.status().message(), ", or {min: …, max: …}, found ",
             Quoted(text));
    return;
  }
  v1::NodeCount value;
  value.set_min(*number);
  value.set_max(*number);
  count.CopyFrom(value);
}

void YamlReader::ReadLostCoordinator(const YAML::Node& node, const std::string& where,
                                     Message& policy) {
  if (node.IsScalar() && node.Scalar() == "continue") return;
  if (node.IsMap()) return ReadMessage(node, where, policy);
  AddError(node.Mark(), where, ": expected 'continue' or {stop_after: 10m}, found ", Found(node));
}

bool YamlReader::ReadScalar(const YAML::Node& node, const std::string& where,
                            absl::string_view expected, std::string& text) {
  if (!node.IsScalar()) {
    AddError(node.Mark(), where, ": expected ", expected, ", found ", KindOf(node));
    return false;
  }
  text = node.Scalar();
  return Count(node.Mark(), text.size());
}

bool YamlReader::Count(const YAML::Mark& mark, size_t bytes) {
  read_bytes_ += bytes;
  if (read_bytes_ <= limits::kSpecBytes) return true;
  if (!too_large_) {
    AddError(mark, "the spec's values exceed the limit of ", limits::kSpecBytes, " bytes");
  }
  too_large_ = true;
  return false;
}

void YamlReader::ReadNumberOrText(const YAML::Node& node, const std::string& where,
                                  const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
  const bool zero_allowed = !ZeroMeansUnset(field);
  std::string text;
  const auto refuse = [&](absl::string_view expected) {
    AddError(node.Mark(), where, ": ", expected, ", found ", Quoted(text));
  };
  const auto read_number =
      [&]<typename Number>(absl::string_view expected,
                           void (Reflection::*set)(Message*, const FieldDescriptor*, Number) const,
                           void (Reflection::*add)(Message*, const FieldDescriptor*, Number)
                               const) {
        if (!ReadScalar(node, where, expected, text)) return;
        if (!text.empty() && text == FieldOf(field).zero_word) return;  // ReadValue has cleared it
        const auto number = ParseNumber<Number>(text, zero_allowed);
        if (!number.ok()) return refuse(number.status().message());
        (reflection.*(repeated ? add : set))(&message, &field, *number);
      };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      if (!ReadScalar(node, where, "a string", text)) return;
      repeated ? reflection.AddString(&message, &field, text)
               : reflection.SetString(&message, &field, text);
      return;
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      if (!ReadScalar(node, where, "true or false", text)) return;
      if (text != "true" && text != "false") return refuse("expected true or false");
      reflection.SetBool(&message, &field, text == "true");
      return;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const std::vector<std::string>& words = FieldOf(field).words;
      if (!ReadScalar(node, where, AnyOf(words), text)) return;
      const auto word = std::find(words.begin(), words.end(), text);
      if (word == words.end()) {
        return AddError(node.Mark(), where, ": unknown ", Quoted(text),
                        "; one of: ", absl::StrJoin(words, ", "));
      }
      reflection.SetEnumValue(&message, &field, static_cast<int>(word - words.begin()));
      return;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return read_number("a number", &Reflection::SetDouble, &Reflection::AddDouble);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return read_number("a number", &Reflection::SetFloat, &Reflection::AddFloat);
    case FieldDescriptor::CPPTYPE_INT32:
      return read_number("an integer", &Reflection::SetInt32, &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_UINT32:
      return read_number("an integer", &Reflection::SetUInt32, &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64: {
      if (FormOf(field) != FieldForm::kSize) {
        return read_number("an integer", &Reflection::SetUInt64, &Reflection::AddUInt64);
      }
      if (!ReadScalar(node, where, "an integer", text)) return;
      const auto size = ParseSize(text);
      if (!size.ok()) return AddError(node.Mark(), where, ": ", size.status().message());
      if (*size == 0 && !zero_allowed) return refuse("expected a size above 0");
      return reflection.SetUInt64(&message, &field, *size);
    }
    default:
      // No field of the spec has another type.
      return AddError(node.Mark(), where, " cannot be written in a spec");
  }
}

absl::Status SetField(absl::string_view value, const FieldDescriptor& field, Message& message) {
  YamlReader reader(field.name(), /*with_lines=*/false);
  try {
    const bool nested = !value.empty() && (value[0] == '{' || value[0] == '[');
    const std::string text(value);
    reader.ReadField(nested ? YAML::Load(text) : YAML::Node(text), field.name(), field, message);
  } catch (const YAML::Exception& error) {
    reader.AddError(error.mark, error.msg);
  }
  return reader.status();
}

}  // namespace muster::spec
