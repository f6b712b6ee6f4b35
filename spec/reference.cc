// SpecReference, which generates docs/reference/spec.md.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "spec/explain.h"
#include "spec/schema.h"

namespace muster::spec {
namespace {

constexpr char kHead[] =
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

std::string SpecReference() {
  std::string out = kHead;
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
