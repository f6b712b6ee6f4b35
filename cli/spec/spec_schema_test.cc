#include "cli/spec/spec_schema.h"

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "spec/explain.h"

namespace muster::cli {
namespace {

const nlohmann::ordered_json& Properties(const nlohmann::ordered_json& schema) {
  if (schema.contains("properties")) return schema["properties"];
  return schema["anyOf"][1]["properties"];  // the long form of two
}

// What `schema` describes, or its elements.
const nlohmann::ordered_json& Referred(const nlohmann::ordered_json& schema,
                                       const nlohmann::ordered_json& root) {
  if (!schema.contains("items") || !schema["items"].contains("$ref")) return schema;
  return root[nlohmann::ordered_json::json_pointer(
      schema["items"]["$ref"].get<std::string>().substr(1))];
}

TEST(SpecSchemaTest, HoldsEveryField) {
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

TEST(SpecSchemaTest, Types) {
  const nlohmann::ordered_json properties = Properties(SpecSchema());
  const nlohmann::ordered_json& train = properties["train"]["properties"];
  EXPECT_EQ(train["epochs"]["exclusiveMinimum"], 0);
  EXPECT_EQ(train["max_steps"]["minimum"], 1);
  EXPECT_EQ(train["drop_last"]["type"], "boolean");
  EXPECT_EQ(train["model"]["properties"]["name"]["enum"][0], "small_cnn");
  EXPECT_EQ(properties["command"]["items"]["type"][0], "string");
  EXPECT_EQ(properties["on_lost_coordinator"]["anyOf"][0]["const"], "continue");
  EXPECT_EQ(properties["resources"]["properties"]["nodes"]["anyOf"][0]["minimum"], 1);
  EXPECT_EQ(properties["priority"]["type"], "integer");
  EXPECT_FALSE(properties["priority"].contains("minimum"));
  EXPECT_EQ(properties["train"]["additionalProperties"], false);
  EXPECT_EQ(train["dataset"]["properties"]["mean"]["items"]["type"], "number");
  EXPECT_EQ(train["schedule"]["properties"]["milestones"]["items"]["type"], "number");
}

TEST(SpecSchemaTest, Layers) {
  const nlohmann::ordered_json schema = SpecSchema();
  const nlohmann::ordered_json& layer = schema["$defs"]["layer"]["anyOf"];
  EXPECT_EQ(layer[0]["enum"][0], "conv2d");
  EXPECT_EQ(layer[1]["maxProperties"], 1);
  const nlohmann::ordered_json& residual = layer[1]["properties"]["residual"]["properties"];
  EXPECT_EQ(residual["shortcut"]["items"]["$ref"], "#/$defs/layer");
  EXPECT_EQ(residual["layers"]["type"][0], "array");
}

}  // namespace
}  // namespace muster::cli
