#include "common/spec/explain.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/spec/fields.h"
#include "common/spec/nearest.h"
#include "common/spec/schema.h"
#include "common/spec/spec.h"
#include "common/spec/to_yaml.h"
#include "common/status.h"

namespace muster::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Whether it holds fields that have paths of their own.
bool HasFields(const FieldDescriptor& field) {
  return field.message_type() != nullptr && !field.is_map() &&
         FormOf(field) != FieldForm::kDuration;
}

absl::StatusOr<std::vector<const FieldDescriptor*>> Resolve(absl::string_view path) {
  std::vector<const FieldDescriptor*> fields;
  const Descriptor* message = v1::JobSpec::descriptor();
  std::string where;
  for (const absl::string_view name : absl::StrSplit(path, '.', absl::SkipEmpty())) {
    if (message == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " has no fields; there is no ", Quoted(path)));
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

std::string NumberText(const FieldDescriptor& field) {
  const bool whole = field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE;
  const bool above_zero = ZeroMeansUnset(field);
  return absl::StrCat(whole ? "whole number" : "number", above_zero ? " above 0" : "");
}

std::string TypeText(const FieldDescriptor& field) {
  if (field.is_map()) return "names with texts, as in {NAME: value}";
  if (field.is_repeated()) {
    return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ? "list of texts"
                                                               : "list of whole numbers";
  }
  switch (FormOf(field)) {
    case FieldForm::kDuration:
      return "duration, as in 90s, 10m or 1.5h";
    case FieldForm::kSize:
      return "size, as in 25MiB";
    case FieldForm::kNodeCount:
      return "whole number above 0, or {min: …, max: …}";
    case FieldForm::kLostCoordinator:
      return "continue, or {stop_after: …}";
    case FieldForm::kPlain:
      break;
  }
  if (field.message_type() != nullptr) return "fields";
  if (!NotesOn(field).words.empty()) return "word";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "text";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    default:
      return NumberText(field);
  }
}

// Specs of which each default is applied somewhere.
std::vector<v1::JobSpec> Probes() {
  std::vector<v1::JobSpec> probes(2);
  for (v1::JobSpec& probe : probes) {
    probe.mutable_train()->mutable_checkpoint();
    probe.mutable_train()->mutable_dataset();
  }
  probes[0].mutable_train()->mutable_model()->set_name("small_cnn");
  probes[1].mutable_train()->mutable_model()->set_name("mlp");
  return probes;
}

// What ApplyDefaults puts there; empty where it puts nothing.
std::string AppliedDefault(const std::vector<const FieldDescriptor*>& path) {
  if (HasFields(*path.back()) && FormOf(*path.back()) == FieldForm::kPlain) return "";
  for (v1::JobSpec& spec : Probes()) {
    const v1::JobSpec before = spec;
    ApplyDefaults(spec);
    const Message* message = &spec;
    const Message* message_before = &before;
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      message = &message->GetReflection()->GetMessage(*message, path[i]);
      message_before = &message_before->GetReflection()->GetMessage(*message_before, path[i]);
    }
    const FieldDescriptor& field = *path.back();
    const bool given =
        !field.is_repeated() && message_before->GetReflection()->HasField(*message_before, &field);
    if (!given && IsShown(*message, field)) return ValueText(*message, field);
  }
  return "";
}

void AddPaths(const Descriptor& message, const std::string& where,
              std::vector<std::string>& paths) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    paths.push_back(JoinPath(where, field.name()));
    if (HasFields(field)) AddPaths(*field.message_type(), std::string(paths.back()), paths);
  }
}

}  // namespace

absl::StatusOr<FieldExplanation> ExplainField(absl::string_view path) {
  ASSIGN_OR_RETURN(const std::vector<const FieldDescriptor*> fields, Resolve(path));
  FieldExplanation explanation;
  if (fields.empty()) {
    explanation.type = "fields";
    explanation.text = "A job, as YAML or JSON.";
    explanation.fields = FieldNames(*v1::JobSpec::descriptor());
    return explanation;
  }
  const FieldDescriptor& field = *fields.back();
  const FieldNotes& notes = NotesOn(field);
  explanation.path = std::string(path);
  explanation.type = TypeText(field);
  explanation.text = std::string(notes.text);
  explanation.words = notes.words;
  explanation.words_elsewhere = notes.words_elsewhere;
  explanation.default_value =
      notes.computed_default.empty() ? AppliedDefault(fields) : std::string(notes.computed_default);
  if (HasFields(field)) explanation.fields = FieldNames(*field.message_type());
  return explanation;
}

std::vector<std::string> FieldPaths() {
  std::vector<std::string> paths;
  AddPaths(*v1::JobSpec::descriptor(), "", paths);
  return paths;
}

std::vector<std::string> WordsOf(absl::string_view path) {
  const auto fields = Resolve(path);
  if (!fields.ok() || fields->empty()) return {};
  return NotesOn(*fields->back()).words;
}

}  // namespace muster::spec
