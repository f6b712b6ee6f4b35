// ExampleSpec: what `muster spec init` prints.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/explain.h"
#include "spec/fields.h"
#include "spec/schema.h"
#include "spec/spec.h"
#include "spec/to_yaml.h"

namespace muster::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

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
  const google::protobuf::Message& message =
      top ? static_cast<const google::protobuf::Message&>(example) : example.train();
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

}  // namespace

std::string ExampleSpec(JobKind kind) {
  v1::JobSpec defaults;
  defaults.mutable_train();
  ApplyDefaults(defaults);
  std::string out = absl::StrCat(kHead, "\n");
  AppendFields(*v1::JobSpec::descriptor(), "", defaults, kind, out);
  return out;
}

}  // namespace muster::spec
