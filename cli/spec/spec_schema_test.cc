#include "cli/spec/spec_schema.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "spec/explain.h"
#include "yaml-cpp/yaml.h"

namespace muster::cli {
namespace {

const nlohmann::ordered_json& Properties(const nlohmann::ordered_json& schema) {
  if (schema.contains("properties")) return schema["properties"];
  return schema["anyOf"][1]["properties"];  // the object form
}

// The schema itself, or that of its elements.
const nlohmann::ordered_json& Referred(const nlohmann::ordered_json& schema,
                                       const nlohmann::ordered_json& root) {
  if (!schema.contains("items")) return schema;
  if (schema["items"].contains("anyOf")) return schema["items"];
  if (!schema["items"].contains("$ref")) return schema;
  return root[nlohmann::ordered_json::json_pointer(
      schema["items"]["$ref"].get<std::string>().substr(1))];
}

TEST(SpecSchemaTest, DescribesEveryField) {
  const nlohmann::ordered_json schema = SpecSchema();
  for (const std::string& path : spec::FieldPaths()) {
    const nlohmann::ordered_json* at = &schema;
    for (const absl::string_view part : absl::StrSplit(path, '.')) {
      const std::string name(part);
      const nlohmann::ordered_json& properties = Properties(Referred(*at, schema));
      ASSERT_TRUE(properties.contains(name)) << path;
      at = &properties[name];
    }
    EXPECT_FALSE((*at)["description"].get<std::string>().empty()) << path;
  }
}

TEST(SpecSchemaTest, DescribesTypesAndRanges) {
  const nlohmann::ordered_json properties = Properties(SpecSchema());
  const nlohmann::ordered_json& train = properties["train"]["properties"];
  EXPECT_EQ(train["epochs"]["exclusiveMinimum"], 0);
  EXPECT_EQ(train["max_steps"]["minimum"], 1);
  EXPECT_EQ(train["drop_last"]["type"], "boolean");
  EXPECT_EQ(train["deterministic"]["enum"], (nlohmann::ordered_json{false, true, "elastic"}));
  EXPECT_EQ(train["model"]["properties"]["name"]["enum"][0], "small_cnn");
  EXPECT_EQ(properties["command"]["items"]["type"][0], "string");
  EXPECT_EQ(properties["files"]["items"]["anyOf"][0]["type"][0], "string");
  EXPECT_EQ(properties["on_lost_coordinator"]["anyOf"][0]["const"], "continue");
  EXPECT_EQ(properties["resources"]["properties"]["nodes"]["anyOf"][0]["minimum"], 1);
  EXPECT_EQ(properties["priority"]["type"], "integer");
  EXPECT_EQ(properties["priority"]["minimum"], -1000);
  EXPECT_EQ(train["image_size"]["maximum"], 1024);
  EXPECT_EQ(properties["train"]["additionalProperties"], false);
  EXPECT_EQ(train["dataset"]["properties"]["mean"]["items"]["type"], "number");
  EXPECT_EQ(train["schedule"]["properties"]["milestones"]["items"]["type"], "number");
}

TEST(SpecSchemaTest, DescribesLayers) {
  const nlohmann::ordered_json schema = SpecSchema();
  const nlohmann::ordered_json& layer = schema["$defs"]["layer"]["anyOf"];
  EXPECT_EQ(layer[0]["enum"][0], "conv2d");
  EXPECT_EQ(layer[1]["maxProperties"], 1);
  const nlohmann::ordered_json& residual = layer[1]["properties"]["residual"]["properties"];
  EXPECT_EQ(residual["shortcut"]["items"]["$ref"], "#/$defs/layer");
  EXPECT_EQ(residual["layers"]["type"][0], "array");
}

using Json = nlohmann::ordered_json;

Json FromYaml(const YAML::Node& node) {
  if (node.IsMap()) {
    Json json = Json::object();
    for (const auto& entry : node) json[entry.first.Scalar()] = FromYaml(entry.second);
    return json;
  }
  if (node.IsSequence()) {
    Json json = Json::array();
    for (const YAML::Node& element : node) json.push_back(FromYaml(element));
    return json;
  }
  if (node.IsNull()) return nullptr;
  const std::string text = node.Scalar();
  if (node.Tag() == "!") return text;  // in quotes
  if (text == "true" || text == "false") return text == "true";
  if (int64_t whole; absl::SimpleAtoi(text, &whole)) return whole;
  if (double number; absl::SimpleAtod(text, &number)) return number;
  return text;
}

bool HasType(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

// Describes why `value` does not match, for the keywords that SpecSchema uses; empty if it matches.
std::string Problem(const Json& value, const Json& schema, const Json& root) {
  if (schema.contains("$ref")) {
    const std::string pointer = schema["$ref"].get<std::string>().substr(1);
    return Problem(value, root.at(Json::json_pointer(pointer)), root);
  }
  const auto fits = [&](const Json& other) { return Problem(value, other, root).empty(); };
  if (schema.contains("anyOf") &&
      std::none_of(schema["anyOf"].begin(), schema["anyOf"].end(), fits)) {
    return absl::StrCat(value.dump(), " matches no alternative");
  }
  if (schema.contains("type")) {
    Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    if (std::none_of(types.begin(), types.end(),
                     [&](const Json& type) { return HasType(value, type); })) {
      return absl::StrCat(value.dump(), " is not ", schema["type"].dump());
    }
  }
  if (schema.contains("const") && value != schema["const"]) return value.dump() + ": const";
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    return value.dump() + ": enum";
  }
  if (value.is_number()) {
    const double number = value.get<double>();
    if ((schema.contains("minimum") && number < schema["minimum"]) ||
        (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"]) ||
        (schema.contains("maximum") && number > schema["maximum"]) ||
        (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"])) {
      return value.dump() + ": range";
    }
  }
  if (value.is_array() && schema.contains("items")) {
    for (const Json& element : value) {
      if (const std::string problem = Problem(element, schema["items"], root); !problem.empty()) {
        return problem;
      }
    }
  }
  if (!value.is_object()) return "";
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name)) return name.dump() + ": required";
  }
  if (schema.contains("maxProperties") && value.size() > schema["maxProperties"]) {
    return "maxProperties";
  }
  for (const auto& [name, field] : value.items()) {
    if (schema.contains("properties") && schema["properties"].contains(name)) {
      const std::string problem = Problem(field, schema["properties"][name], root);
      if (!problem.empty()) return absl::StrCat(name, ": ", problem);
    } else if (schema.value("additionalProperties", Json()) == Json(false)) {
      return name + ": unknown";
    }
  }
  return "";
}

std::string ProblemOf(const YAML::Node& spec) {
  const Json schema = SpecSchema();
  return Problem(FromYaml(spec), schema, schema);
}

TEST(SpecSchemaTest, AcceptsTheExamples) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator("deploy/examples")) {
    ++examples;
    EXPECT_EQ(ProblemOf(YAML::LoadFile(entry.path().string())), "") << entry.path();
  }
  EXPECT_GE(examples, 12);
  EXPECT_EQ(ProblemOf(YAML::Load(spec::ExampleSpec())), "");
}

TEST(SpecSchemaTest, RejectsInvalidSpecs) {
  for (const char* text :
       {"name: a", "{command: [x], nme: a}", "train: {image_size: 2}", "train: {precision: O4}",
        "train: {epochs: 0}", "{command: [x], resources: {nodes: 16385}}",
        "train: {model: {layers: [conv3d]}}", "train: {optimizer: {beta1: 1}}",
        "train: {dataset: {mean: [2]}}", "{command: x}", "{command: [x], priority: 1.5}",
        "train: {model: {layers: [{conv2d: {kernel: 0}}]}}"}) {
    EXPECT_NE(ProblemOf(YAML::Load(text)), "") << text;
  }
  for (const char* text : {"{command: [x], backend: loopback}", "{command: [x, 1, true]}",
                           "{command: [x], resources: {nodes: {min: 1, max: 2}}}"}) {
    EXPECT_EQ(ProblemOf(YAML::Load(text)), "") << text;
  }
}

}  // namespace
}  // namespace muster::cli
