// Checks the table against the proto, and each use of the table for a sample of fields.
#include "spec/fields.h"

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/explain.h"
#include "spec/schema.h"
#include "spec/spec.h"
#include "spec/yaml/yaml_reader.h"

namespace muster::spec {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

void Collect(const Descriptor& message, std::set<const Descriptor*>& messages,
             std::vector<const FieldDescriptor*>& fields) {
  if (!messages.insert(&message).second) return;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    fields.push_back(&field);
    const bool section =
        field.message_type() != nullptr && !field.is_map() && FormOf(field) != FieldForm::kDuration;
    if (section) Collect(*field.message_type(), messages, fields);
  }
}

std::vector<const FieldDescriptor*> SpecFields() {
  std::set<const Descriptor*> messages;
  std::vector<const FieldDescriptor*> fields;
  Collect(*v1::JobSpec::descriptor(), messages, fields);
  return fields;
}

TEST(FieldsTest, TableAndProtoHaveTheSameFields) {
  std::set<std::string> names;
  for (const FieldDescriptor* field : SpecFields()) {
    names.insert(field->containing_type()->name() + "." + field->name());
  }
  EXPECT_GT(names.size(), 130u);
  EXPECT_THAT(TableEntries(), ElementsAreArray(names));
}

TEST(FieldsTest, EntriesAreConsistent) {
  for (const FieldDescriptor* field : SpecFields()) {
    const Field& entry = FieldOf(*field);
    const std::string& name = field->full_name();
    EXPECT_TRUE(!entry.help.empty() && entry.help.back() == '.') << name;
    if (!entry.only_with.words.empty()) {
      const FieldDescriptor* sibling =
          field->containing_type()->FindFieldByName(std::string(entry.only_with.field));
      ASSERT_NE(sibling, nullptr) << name;
      for (const std::string& word : entry.only_with.words) {
        EXPECT_THAT(FieldOf(*sibling).words, testing::Contains(word)) << name;
      }
    }
    // The default and each example can be parsed.
    std::vector<std::string> values = entry.examples;
    if (!entry.default_value.empty()) values.push_back(std::string(entry.default_value));
    for (const std::string& value : values) {
      v1::JobSpec top;
      std::unique_ptr<google::protobuf::Message> message(
          google::protobuf::MessageFactory::generated_factory()
              ->GetPrototype(field->containing_type())
              ->New());
      EXPECT_TRUE(SetField(value, *field, *message).ok()) << name << ": " << value;
    }
  }
}

// A field and the expected results of each use of the table.
struct Sample {
  const char* path;
  const char* section;       // a spec in which the field applies
  const char* value;         // a valid value
  const char* bad_text;      // a value that cannot be parsed
  const char* parse_error;   // the error for bad_text
  const char* bad_value;     // a value that can be parsed but is invalid
  const char* problem;       // the error for bad_value
  const char* default_text;  // the default that explain and the reference show
  const char* type;
  const char* in_example;  // its line in the example; null for fields of inner sections
};

const Sample kSamples[] = {
    {"train.image_size", "train: {}", "64", "0", "expected a number above 0", "2000",
     "must be from 4 to 1024, not 2000", "the dataset's own", "integer from 4 to 1024, in pixels",
     "#image_size: 28"},
    {"train.precision", "train: {}", "O2", "[O2]", "expected a string", "O4",
     "unknown 'O4'; did you mean 'O0'? One of: O0, O1, O2, O3", "O0", "string", "#precision: O0"},
    {"train.strategy.bucket_bytes", "train: {}", "1MiB", "1Mb", "is not a size", "5GiB",
     "must be from 1 to 4GiB, not 5GiB", "25MiB", "size from 1 to 4GiB", nullptr},
    {"failure_timeout", "command: [x]", "90s", "90", "needs a unit", "10ms",
     "must be from 1s to 87600h, not 10ms", "30s", "duration from 1s to 87600h",
     "#failure_timeout: 30s"},
    {"hang_timeout", "command: [x]", "never", "soon", "'soon' is not a duration", "10ms",
     "must be from 1s to 87600h, or never, not 10ms", "10m for commands, never for train",
     "duration from 1s to 87600h, or never", "#hang_timeout: 10m"},
    {"train.loader.threads", "train: {}", "auto", "0", "expected a number above 0", "5000",
     "must be from 1 to 1024, or auto, not 5000", "auto", "integer from 1 to 1024, or auto",
     nullptr},
    {"resources.nodes", "command: [x]", "{min: 1, max: 2}", "two", "found 'two'", "16385",
     "must be from 1 to 16384, not 16385", "1", "integer from 1 to 16384, or {min: …, max: …}",
     nullptr},
    {"train.optimizer.beta1", "train: {optimizer: {name: adamw}}", "0.5", "x", "expected a number",
     "1", "must be above 0 and below 1, not 1", "0.9", "number above 0 and below 1", nullptr},
    {"train.init_from", "train: {}", "/m.safetensors", "{}", "expected a string", "m.safetensors",
     "must be an absolute path on the node, not 'm.safetensors'", "", "absolute path",
     "#init_from: /srv/models/model.safetensors"},
    {"priority", "command: [x]", "-5", "high", "expected an integer", "1001",
     "must be from -1000 to 1000, not 1001", "0", "integer from -1000 to 1000", "#priority: 0"},
    {"backend", "command: [x]", "gloo", "{}", "expected a string", "glo",
     "unknown 'glo'; did you mean 'gloo'? One of: auto, shm, gloo, hierarchical, nccl", "auto",
     "string", "#backend: auto"},
    {"output", "command: [x]", "separate", "{}", "expected a string", "seperate",
     "unknown 'seperate'; did you mean 'separate'? One of: joined, separate", "joined", "string",
     "#output: joined"},
};

std::string ProblemsAt(const std::string& path, const v1::JobSpec& spec) {
  const std::string all(Validate(spec).message());
  const size_t line = all.find(path + ": ");
  return line == std::string::npos ? "" : all.substr(line, all.find('\n', line) - line);
}

TEST(FieldsTest, AllUsesOfTheTableAgree) {
  for (const Sample& sample : kSamples) {
    const std::string path = sample.path;
    SCOPED_TRACE(path);
    const auto with = [&](const std::string& value) {
      absl::StatusOr<v1::JobSpec> spec = Parse(sample.section, "s", {path + "=" + value});
      if (spec.ok()) ApplyDefaults(*spec);
      return spec;
    };
    // Parsing and validation.
    ASSERT_TRUE(with(sample.value).ok()) << with(sample.value).status();
    EXPECT_EQ(ProblemsAt(path, *with(sample.value)), "");
    EXPECT_THAT(std::string(with(sample.bad_text).status().message()),
                HasSubstr(sample.parse_error));
    ASSERT_TRUE(with(sample.bad_value).ok()) << with(sample.bad_value).status();
    EXPECT_EQ(ProblemsAt(path, *with(sample.bad_value)), path + ": " + sample.problem);
    // The default in `explain` and as set by ApplyDefaults.
    const FieldExplanation explanation = *ExplainField(path);
    EXPECT_THAT(explanation.default_value, HasSubstr(sample.default_text));
    EXPECT_EQ(explanation.type, sample.type);
    absl::StatusOr<v1::JobSpec> unset = Parse(sample.section, "s");
    ApplyDefaults(*unset);
    EXPECT_EQ(ProblemsAt(path, *unset), "");
    // The reference and the example.
    const std::string name = path.substr(path.rfind('.') + 1);
    EXPECT_THAT(SpecReference(), HasSubstr("| `" + name + "` | " + explanation.type + " | " +
                                           explanation.default_value + " |"));
    if (sample.in_example != nullptr) EXPECT_THAT(ExampleSpec(), HasSubstr(sample.in_example));
  }
}

TEST(FieldsTest, AcceptsButDoesNotDocumentTestingFields) {
  absl::StatusOr<v1::JobSpec> spec =
      Parse("command: [x]", "s", {"resources.share_device=true", "backend=loopback"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  ApplyDefaults(*spec);
  EXPECT_EQ(Validate(*spec).message(), "");
  EXPECT_THAT(ExplainField("resources.share_device")->text, HasSubstr("For testing only."));
  for (const std::string& text : {SpecReference(), ExampleSpec()}) {
    EXPECT_THAT(text, Not(HasSubstr("share_device")));
    EXPECT_THAT(text, Not(HasSubstr("loopback")));
  }
  EXPECT_THAT(FieldPaths(), Not(testing::Contains("resources.share_device")));
}

}  // namespace

}  // namespace muster::spec
