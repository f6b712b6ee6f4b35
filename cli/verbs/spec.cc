// `muster spec`: verbs for specs that need no coordinator.
#include "spec/spec.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "cli/spec/job_options.h"
#include "cli/spec/spec_file.h"
#include "cli/spec/spec_schema.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"
#include "spec/explain.h"

namespace muster::cli {

void AddExplainPlanVerb(CLI::App& spec, Context& context);  // explain_plan.cc

namespace {

int Init(Context& context, spec::JobKind kind) {
  const std::string text = spec::ExampleSpec(kind);
  const absl::StatusOr<v1::JobSpec> spec = spec::Parse(text, "the example");
  if (!spec.ok()) return context.Fail(spec.status());
  PrintSpec(context, *spec, text);
  return kExitSuccess;
}

struct ValidateFlags {
  std::string path;
  std::vector<std::string> overrides;
};

int Validate(Context& context, const ValidateFlags& flags) {
  absl::StatusOr<v1::JobSpec> spec = ReadSpecFile(flags.path, flags.overrides);
  if (!spec.ok()) return context.Fail(spec.status(), SpecExitCode(spec.status()));
  spec::ApplyDefaults(*spec);
  absl::Status valid = spec::Validate(*spec);
  valid.Update(spec::CheckPlaceholders(*spec));
  if (!valid.ok()) return context.Fail(valid, kExitBadSpec);
  PrintSpec(context, *spec, spec::ToYaml(*spec));
  return kExitSuccess;
}

std::string FieldTable(const spec::FieldExplanation& field, bool wide) {
  Table table(wide ? std::vector<std::string>{"FIELD", "TYPE", "DEFAULT", "DESCRIPTION"}
                   : std::vector<std::string>{"FIELD", "DEFAULT", "DESCRIPTION"});
  for (const std::string& name : field.fields) {
    const spec::FieldExplanation child =
        *spec::ExplainField(field.path.empty() ? name : absl::StrCat(field.path, ".", name));
    // The first sentence.
    const absl::string_view text =
        absl::StripSuffix(absl::string_view(child.text).substr(0, child.text.find(". ")), ".");
    const bool required = child.required && child.default_value.empty();
    std::vector<std::string> row = {name, required ? "required" : child.default_value,
                                    std::string(text)};
    if (wide) row.insert(row.begin() + 1, child.type);
    table.AddRow(std::move(row));
  }
  return table.Text(TextWidth());
}

std::string ExplanationText(const spec::FieldExplanation& field, bool wide) {
  std::string out;
  const auto add = [&out](absl::string_view text) {
    for (const std::string& line : WrappedLines(text, TextWidth())) {
      absl::StrAppend(&out, line, "\n");
    }
  };
  if (!field.path.empty()) add(absl::StrCat(field.path, ": ", field.type));
  add(field.text);
  if (!field.words.empty()) add(absl::StrCat("One of: ", absl::StrJoin(field.words, ", ")));
  if (!field.testing_words.empty()) {
    add(absl::StrCat("For testing only: ", absl::StrJoin(field.testing_words, ", ")));
  }
  if (!field.default_value.empty()) {
    add(absl::StrCat("Default: ", field.default_value));
  } else if (field.required) {
    add("Required");
  }
  if (!field.fields.empty()) absl::StrAppend(&out, "\n", FieldTable(field, wide));
  return out;
}

nlohmann::ordered_json ExplanationJson(const spec::FieldExplanation& field) {
  nlohmann::ordered_json json;
  json["field"] = field.path;
  json["type"] = field.type;
  json["text"] = field.text;
  if (!field.default_value.empty()) json["default"] = field.default_value;
  if (!field.words.empty()) json["words"] = field.words;
  if (field.required) json["required"] = true;
  if (!field.fields.empty()) json["fields"] = field.fields;
  return json;
}

int Explain(Context& context, const std::string& path) {
  const absl::StatusOr<spec::FieldExplanation> field = spec::ExplainField(path);
  if (!field.ok()) return context.Fail(field.status());
  if (context.structured()) {
    context.Print(ExplanationJson(*field));
  } else if (context.output == Output::kName) {
    // The field's subfields, or the field itself if it has none.
    if (field->fields.empty()) context.console.Out(absl::StrCat(field->path, "\n"));
    for (const std::string& name : field->fields) {
      context.console.Out(absl::StrCat(field->path, field->path.empty() ? "" : ".", name, "\n"));
    }
  } else {
    context.console.Out(ExplanationText(*field, context.output == Output::kWide));
  }
  return kExitSuccess;
}

int Schema(Context& context) {
  if (context.output == Output::kName) {
    for (const std::string& path : spec::FieldPaths()) context.console.Out(path + "\n");
  } else if (context.output == Output::kYaml) {
    context.Print(SpecSchema());
  } else {
    context.console.Out(JsonText(SpecSchema()));
  }
  return kExitSuccess;
}

void AddInit(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(
      group, "init", kSpecVerbs,
      {.summary = "Print a commented example spec",
       .usage = "[OPTIONS]",
       .examples = {{"muster spec init > job.yaml", "create a spec for the built-in trainer"},
                    {"muster spec init --command > job.yaml", "create a spec for a command"}}});
  auto kind = std::make_shared<spec::JobKind>(spec::JobKind::kTrain);
  verb.add_flag_callback(
      "--command", [kind] { *kind = spec::JobKind::kCommand; },
      "Print the spec of a job that runs a command");
  SetAction(verb, context, kind, Init);
}

void AddValidate(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(
      group, "validate", kSpecVerbs,
      {.summary = "Validate a spec and print it with its defaults",
       .usage = "FILE [OPTIONS]",
       .paragraphs =
           {"Reports the errors for which the coordinator would reject the spec. Errors that only "
            "a node can detect, such as missing data, are reported when the job runs."},
       .exits = {{"0", "The spec is valid"},
                 {"66", "FILE cannot be read"},
                 {"78", "The spec is invalid; stderr has one line per error"}},
       .examples = {{"muster spec validate job.yaml", "print the spec as it would run"},
                    {"muster spec validate job.yaml --set resources.nodes=4",
                     "validate the spec for four nodes"}}});
  auto flags = std::make_shared<ValidateFlags>();
  AddSpecOptions(verb, flags->path, flags->overrides, /*required=*/true);
  SetAction(verb, context, flags, Validate);
}

void AddExplain(CLI::App& group, Context& context) {
  Verb& verb =
      AddVerb(group, "explain", kSpecVerbs,
              {.summary = "Explain a field of the spec",
               .usage = "[FIELD] [OPTIONS]",
               .paragraphs = {"Prints the field's type, description and default, and its "
                              "subfields. Without FIELD, explains the spec itself."},
               .examples = {{"muster spec explain train.optimizer", "a section of the spec"},
                            {"muster spec explain resources.nodes", "one field"}}});
  auto path = std::make_shared<std::string>();
  verb.add_option("FIELD", *path, "Path of the field, as in train.optimizer.name");
  SetAction(verb, context, path, Explain);
}

}  // namespace

void AddSpecVerbs(CLI::App& app, Context& context) {
  Verb& group =
      AddVerb(app, "spec", kSpecVerbs,
              {.summary = "Work with job specs: init, validate, explain, explain-plan, schema",
               .usage = "VERB [OPTIONS]",
               .paragraphs = {"These verbs need no coordinator."}});
  group.require_subcommand(1);
  AddInit(group, context);
  AddValidate(group, context);
  AddExplain(group, context);
  AddExplainPlanVerb(group, context);
  AddVerb(group, "schema", kSpecVerbs,
          {.summary = "Print the JSON Schema of specs",
           .usage = "[OPTIONS]",
           .paragraphs = {"For editors and other programs. With -o name, prints the names of all "
                          "fields instead."},
           .examples = {{"muster spec schema > job.schema.json",
                         "a schema for an editor's YAML language server"}}})
      .callback([&context] { context.action = [&context] { return Schema(context); }; });
}

}  // namespace muster::cli
