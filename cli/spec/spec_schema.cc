#include "cli/spec/spec_schema.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "cli/output/json.h"
#include "nlohmann/json.hpp"
#include "proto/muster/v1/job.pb.h"
#include "spec/explain.h"
#include "spec/fields.h"
#include "spec/schema.h"

namespace muster::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::ordered_json;

// Layers can contain layers, so their schema is a separate definition.
constexpr char kLayerReference[] = "#/$defs/layer";
constexpr char kLayerPath[] = "train.model.layers";

// A string may be written as a number or a boolean: YAML needs no quotes there.
const ordered_json& TextSchema() {
  static const ordered_json& schema = *new ordered_json{{"type", {"string", "number", "boolean"}}};
  return schema;
}

ordered_json MessageSchema(const Descriptor& message, const std::string& where);

// A layer is a bare word or an object with a single field.
ordered_json LayerSchema(const Descriptor& layer, const std::string& where) {
  ordered_json fields = MessageSchema(layer, where);
  fields["minProperties"] = 1;
  fields["maxProperties"] = 1;
  return {{"anyOf", {{{"enum", spec::FieldNames(layer)}}, std::move(fields)}}};
}

ordered_json NumberSchema(const FieldDescriptor& field) {
  const spec::Range& range = spec::FieldOf(field).range;
  const bool whole = field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE &&
                     field.cpp_type() != FieldDescriptor::CPPTYPE_FLOAT;
  const auto bound = [whole](double value) {
    return whole ? ordered_json(static_cast<int64_t>(value)) : ordered_json(value);
  };
  ordered_json schema;
  schema["type"] = whole ? "integer" : "number";
  if (range.bounded_below()) {
    schema[range.low_excluded ? "exclusiveMinimum" : "minimum"] = bound(range.low);
  } else if (whole && field.cpp_type() != FieldDescriptor::CPPTYPE_INT32) {
    schema["minimum"] = 0;
  }
  if (range.bounded_above()) {
    schema[range.high_excluded ? "exclusiveMaximum" : "maximum"] = bound(range.high);
  }
  return schema;
}

// The schema of one value of the field, which may be repeated.
ordered_json ValueSchema(const FieldDescriptor& field, const std::string& path) {
  const std::string zero_word(spec::FieldOf(field).zero_word);
  switch (spec::FormOf(field)) {
    case spec::FieldForm::kDuration:
      return {
          {"type", "string"},
          {"pattern", absl::StrCat("^([0-9.]+(ns|us|ms|s|m|h))+$|^0$",
                                   zero_word.empty() ? "" : absl::StrCat("|^", zero_word, "$"))}};
    case spec::FieldForm::kSize:
      return {{"type", {"integer", "string"}}};
    case spec::FieldForm::kNodeCount:
      return {{"anyOf",
               {{{"type", "integer"},
                 {"minimum", spec::FieldOf(field).range.low},
                 {"maximum", spec::FieldOf(field).range.high}},
                MessageSchema(*field.message_type(), path)}}};
    case spec::FieldForm::kLostCoordinator:
      return {{"anyOf", {{{"const", "continue"}}, MessageSchema(*field.message_type(), path)}}};
    case spec::FieldForm::kLayer:
      return {{"$ref", kLayerReference}};
    case spec::FieldForm::kFile:
      return {{"anyOf", {TextSchema(), MessageSchema(*field.message_type(), path)}}};
    case spec::FieldForm::kTaskValues:
      return {{"type", "object"}};
    case spec::FieldForm::kEnvironment:
    case spec::FieldForm::kMatrix:
    case spec::FieldForm::kPlain:
      break;
  }
  if (field.message_type() != nullptr) return MessageSchema(*field.message_type(), path);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      std::vector<std::string> words = spec::FieldOf(field).words;
      const std::vector<std::string>& more = spec::FieldOf(field).testing_words;
      words.insert(words.end(), more.begin(), more.end());
      return words.empty() ? TextSchema() : ordered_json{{"enum", words}};
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      ordered_json words = ordered_json::array();
      for (const std::string& word : spec::FieldOf(field).words) words.push_back(WordJson(word));
      return {{"enum", words}};
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return {{"type", "boolean"}};
    default:
      if (!zero_word.empty()) return {{"anyOf", {NumberSchema(field), {{"const", zero_word}}}}};
      return NumberSchema(field);
  }
}

// {secret: NAME}, the value of an environment variable.
ordered_json SecretSchema() {
  return {{"type", "object"},
          {"properties", {{"secret", TextSchema()}}},
          {"required", {"secret"}},
          {"additionalProperties", false}};
}

ordered_json FieldSchema(const FieldDescriptor& field, const std::string& path) {
  const spec::FieldExplanation notes = *spec::ExplainField(path);
  ordered_json schema;
  schema["description"] = absl::StrCat(
      notes.text,
      notes.default_value.empty() ? "" : absl::StrCat(" Default: ", notes.default_value, "."));
  // A section whose lines are all commented out is null, which is valid.
  const bool may_be_empty = field.is_repeated() || (field.message_type() != nullptr &&
                                                    spec::FormOf(field) == spec::FieldForm::kPlain);
  ordered_json value;
  if (spec::FormOf(field) == spec::FieldForm::kEnvironment) {
    value = {{"type", "object"},
             {"additionalProperties", {{"anyOf", {TextSchema(), SecretSchema()}}}}};
  } else if (spec::FormOf(field) == spec::FieldForm::kMatrix) {
    value = {{"type", "object"}, {"additionalProperties", {{"type", "array"}, {"minItems", 1}}}};
  } else if (field.is_map()) {
    value = {{"type", "object"}, {"additionalProperties", TextSchema()}};
  } else if (field.is_repeated()) {
    value = {{"type", "array"}, {"items", ValueSchema(field, path)}};
    const uint32_t max_items = spec::FieldOf(field).max_items;
    if (max_items > 0) value["maxItems"] = max_items;
  } else {
    value = ValueSchema(field, path);
  }
  if (may_be_empty) value["type"] = {value["type"], "null"};
  schema.update(value);
  return schema;
}

ordered_json MessageSchema(const Descriptor& message, const std::string& where) {
  ordered_json schema;
  schema["type"] = "object";
  schema["additionalProperties"] = false;
  ordered_json properties = ordered_json::object();
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    properties[field.name()] = FieldSchema(field, spec::JoinPath(where, field.name()));
  }
  schema["properties"] = std::move(properties);
  return schema;
}

}  // namespace

ordered_json SpecSchema() {
  ordered_json schema;
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "Muster job";
  schema.update(MessageSchema(*v1::JobSpec::descriptor(), ""));
  schema["anyOf"] = {{{"required", {"train"}}}, {{"required", {"command"}}}};
  schema["$defs"]["layer"] = LayerSchema(*v1::LayerSpec::descriptor(), kLayerPath);
  return schema;
}

}  // namespace muster::cli
