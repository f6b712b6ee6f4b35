#include "spec/explain.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "common/text/nearest.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/fields.h"
#include "spec/schema.h"
#include "spec/spec.h"
#include "spec/yaml/to_yaml.h"

namespace muster::spec {
namespace {

// Whether the field is a section whose fields have paths of their own.
bool HasFields(const FieldDescriptor& field) {
  return field.message_type() != nullptr && !field.is_map() &&
         FormOf(field) != FieldForm::kDuration && FormOf(field) != FieldForm::kMatrix &&
         FormOf(field) != FieldForm::kTaskValues;
}

absl::StatusOr<std::vector<const FieldDescriptor*>> Resolve(absl::string_view path) {
  std::vector<const FieldDescriptor*> fields;
  const Descriptor* message = v1::JobSpec::descriptor();
  std::string where;
  for (const absl::string_view name : absl::StrSplit(path, '.', absl::SkipEmpty())) {
    if (message == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " has no fields; unknown path ", Quoted(path)));
    }
    const FieldDescriptor* field = message->FindFieldByName(std::string(name));
    if (field == nullptr) {
      return absl::InvalidArgumentError(UnknownField(*message, where, name));
    }
    fields.push_back(field);
    where = JoinPath(where, name);
    message = HasFields(*field) ? field->message_type() : nullptr;
  }
  return fields;
}

// `text` with the field's range and unit: "integer from 4 to 1024, in pixels".
std::string Bounded(absl::string_view text, const FieldDescriptor& field) {
  const std::string range = RangeText(field);
  const absl::string_view unit = FieldOf(field).unit;
  const bool in_unit = !unit.empty() && FormOf(field) != FieldForm::kSize;
  return absl::StrCat(text, range.empty() ? "" : " ", range, in_unit ? ", in " : "",
                      in_unit ? unit : "");
}

bool IsInteger(const FieldDescriptor& field) {
  return field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_FLOAT;
}

std::string ListTypeText(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (FormOf(field) == FieldForm::kFile) return "list of paths, as in [train.py, conf/]";
      if (FormOf(field) == FieldForm::kTaskValues) return "list of maps, as in [{FIELD: value}]";
      return "list of layers, as in [relu, {linear: {out_features: 10}}]";
    case FieldDescriptor::CPPTYPE_STRING:
      return "list of strings";
    default:
      return Bounded(IsInteger(field) ? "list of integers" : "list of numbers", field);
  }
}

std::string TypeText(const FieldDescriptor& field) {
  if (FormOf(field) == FieldForm::kEnvironment) {
    return "map of strings and secrets, as in {NAME: value, TOKEN: {secret: NAME}}";
  }
  if (field.is_map()) return "map of strings, as in {NAME: value}";
  if (FormOf(field) == FieldForm::kMatrix) return "map of lists, as in {FIELD: [value, value]}";
  if (field.is_repeated()) return ListTypeText(field);
  switch (FormOf(field)) {
    case FieldForm::kDuration:
      return Bounded("duration", field);
    case FieldForm::kSize:
      return Bounded("size", field);
    case FieldForm::kNodeCount:
      return Bounded("integer", field) + ", or {min: …, max: …}";
    case FieldForm::kLostCoordinator:
      return "continue, or {stop_after: …}";
    case FieldForm::kLayer:
    case FieldForm::kFile:
    case FieldForm::kEnvironment:
    case FieldForm::kMatrix:
    case FieldForm::kTaskValues:
    case FieldForm::kPlain:
      break;
  }
  if (field.message_type() != nullptr) {
    return field.message_type()->field_count() > 0 ? "fields" : "no options";
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return AnyOf(FieldOf(field).words);
  if (!FieldOf(field).words.empty()) return "string";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return FieldOf(field).absolute_path ? "absolute path" : "string";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    default:
      return Bounded(IsInteger(field) ? "integer" : "number", field);
  }
}

// The default, human-readable; empty if there is none.
std::string DefaultText(const FieldDescriptor& field) {
  const Field& entry = FieldOf(field);
  if (!entry.computed_default.empty()) return std::string(entry.computed_default);
  if (entry.default_value == "{}") return "";
  if (!entry.default_value.empty()) return std::string(entry.default_value);
  // Zero is a valid value, and thus the default, rather than meaning "not set".
  const bool zero = !field.is_repeated() && !field.has_presence() && !ZeroMeansUnset(field) &&
                    field.cpp_type() != FieldDescriptor::CPPTYPE_STRING;
  if (!zero) return "";
  return field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL ? "false" : "0";
}

std::vector<std::string> PublicFields(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) {
    if (!FieldOf(*message.field(i)).testing_only) names.push_back(message.field(i)->name());
  }
  return names;
}

// Adds the paths of `message`, which is nested in the messages `outer`. A message that is already
// in `outer`, such as layers within layers, is not entered again.
void AddPaths(const Descriptor& message, const std::string& where,
              std::vector<const Descriptor*> outer, std::vector<std::string>& paths) {
  outer.push_back(&message);
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (FieldOf(field).testing_only) continue;
    const std::string path = JoinPath(where, field.name());
    paths.push_back(path);
    const bool listed = std::find(outer.begin(), outer.end(), field.message_type()) != outer.end();
    if (HasFields(field) && !listed) AddPaths(*field.message_type(), path, outer, paths);
  }
}

constexpr size_t kLineLength = 100;

constexpr char kHead[] =
    R"(# A Muster job. Lines that begin with '#' and no blank are fields that are not set; they show the
# default or an example. `muster spec explain FIELD` describes a field in full, `muster spec
# validate FILE` checks the file, `muster run FILE` runs it.
)";

void AppendComment(const std::string& text, const std::string& indent, std::string& out) {
  std::string line = indent + "#";
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (line.size() + 1 + word.size() > kLineLength) {
      absl::StrAppend(&out, line, "\n");
      line = indent + "#";
    }
    absl::StrAppend(&line, " ", word);
  }
  absl::StrAppend(&out, line, "\n");
}

// The field's value in `example`, a spec with defaults; empty if it has none.
std::string DefaultOf(const FieldDescriptor& field, const v1::JobSpec& example) {
  const bool top = field.containing_type() == v1::JobSpec::descriptor();
  const Message& message = top ? static_cast<const Message&>(example) : example.train();
  return IsShown(message, field) ? ValueText(message, field) : "";
}

std::string CommentOf(const FieldDescriptor& field, const std::string& path) {
  const FieldExplanation explanation = *ExplainField(path);
  std::string text = Summary(FieldOf(field));
  if (!explanation.words.empty()) {
    absl::StrAppend(&text, ": ", absl::StrJoin(explanation.words, ", "));
  } else if (!explanation.fields.empty() && FormOf(field) == FieldForm::kPlain) {
    absl::StrAppend(&text, ": ", absl::StrJoin(explanation.fields, ", "));
  }
  return text + ".";
}

// Whether the field's first example is set, and not a comment.
bool IsSet(const FieldDescriptor& field, JobKind kind) {
  return kind == JobKind::kTrain ? FieldOf(field).in_init : field.name() == "command";
}

void AppendFields(const Descriptor& message, const std::string& where, const v1::JobSpec& example,
                  JobKind kind, std::string& out) {
  const std::string indent = where.empty() ? "" : "  ";
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const Field& entry = FieldOf(field);
    if (entry.testing_only) continue;
    if (field.message_type() == v1::TrainSpec::descriptor()) {
      if (kind == JobKind::kCommand) continue;
      absl::StrAppend(&out, "\n");
      AppendComment(Summary(entry) + ".", indent, out);
      absl::StrAppend(&out, field.name(), ":\n");
      AppendFields(*field.message_type(), field.name(), example, kind, out);
      absl::StrAppend(&out, "\n");
      continue;
    }
    AppendComment(CommentOf(field, JoinPath(where, field.name())), indent, out);
    std::vector<std::string> values = entry.examples;
    if (values.empty()) values.push_back(DefaultOf(field, example));
    for (size_t k = 0; k < values.size(); ++k) {
      absl::StrAppend(&out, indent, IsSet(field, kind) && k == 0 ? "" : "#", field.name(), ": ",
                      values[k], "\n");
    }
  }
}

constexpr char kReferenceHead[] =
    R"(# Job spec reference

For users: every field of a job's spec, which is YAML or JSON. Generated from the table in `spec/fields*.cc`; to update it
run `bazel run //spec:write_reference > docs/reference/spec.md`. `muster spec explain FIELD` prints the same, and
`muster spec schema` prints a JSON schema for editors.

Durations have a unit (`90s`, `10m`, `1.5h`), and so may sizes (`25MiB`, `100MB`, `4096`; `8G` is 8GiB). A section whose fields
all have defaults may be left out. "required" means: once the section is given.
)";

std::string Cell(absl::string_view text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string Row(const std::string& name, const FieldExplanation& field) {
  std::string text = field.text;
  if (!field.words.empty()) {
    absl::StrAppend(&text, " One of: `", absl::StrJoin(field.words, "`, `"), "`.");
  }
  const std::string fallback = !field.default_value.empty() ? field.default_value
                               : field.required             ? "required"
                                                            : "";
  return absl::StrCat("| `", name, "` | ", Cell(field.type), " | ", Cell(fallback), " | ",
                      Cell(text), " |\n");
}

}  // namespace

absl::StatusOr<FieldExplanation> ExplainField(absl::string_view path) {
  ASSIGN_OR_RETURN(const std::vector<const FieldDescriptor*> fields, Resolve(path));
  FieldExplanation explanation;
  if (fields.empty()) {
    explanation.type = "fields";
    explanation.text = "A job, as YAML or JSON.";
    explanation.fields = PublicFields(*v1::JobSpec::descriptor());
    return explanation;
  }
  const FieldDescriptor& field = *fields.back();
  const Field& entry = FieldOf(field);
  explanation.path = std::string(path);
  explanation.type = TypeText(field);
  explanation.text = std::string(entry.help);
  if (!entry.only_with.words.empty()) {
    absl::StrAppend(&explanation.text, " Only with ", entry.only_with.field, " ",
                    AnyOf(entry.only_with.words), ".");
  }
  if (entry.testing_only) absl::StrAppend(&explanation.text, " For testing only.");
  explanation.default_value = DefaultText(field);
  explanation.required = entry.required;
  explanation.testing_only = entry.testing_only;
  explanation.words = entry.words;
  explanation.testing_words = entry.testing_words;
  if (HasFields(field)) explanation.fields = PublicFields(*field.message_type());
  return explanation;
}

std::vector<std::string> FieldPaths() {
  std::vector<std::string> paths;
  AddPaths(*v1::JobSpec::descriptor(), "", {}, paths);
  return paths;
}

std::vector<std::string> WordsOf(absl::string_view path) {
  const auto fields = Resolve(path);
  if (!fields.ok() || fields->empty()) return {};
  return FieldOf(*fields->back()).words;
}

std::string ExampleSpec(JobKind kind) {
  v1::JobSpec defaults;
  defaults.mutable_train();
  ApplyDefaults(defaults);
  std::string out = absl::StrCat(kHead, "\n");
  AppendFields(*v1::JobSpec::descriptor(), "", defaults, kind, out);
  return out;
}

std::string SpecReference() {
  std::string out = kReferenceHead;
  std::vector<std::string> sections = {""};
  for (const std::string& path : FieldPaths()) sections.push_back(path);
  for (const std::string& section : sections) {
    const FieldExplanation explanation = *ExplainField(section);
    // Layers within layers have the same fields.
    if (explanation.fields.empty() ||
        (section != "train.model.layers" && explanation.type.rfind("list of layers", 0) == 0)) {
      continue;
    }
    absl::StrAppend(&out, "\n## ", section.empty() ? "Top level" : absl::StrCat("`", section, "`"),
                    "\n\n", section.empty() ? "" : explanation.text + "\n\n",
                    "| field | type | default | description |\n|---|---|---|---|\n");
    for (const std::string& name : explanation.fields) {
      absl::StrAppend(&out, Row(name, *ExplainField(JoinPath(section, name))));
    }
  }
  return out;
}

}  // namespace muster::spec
