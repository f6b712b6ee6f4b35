#include "spec/explain.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "spec/fields.h"
#include "spec/nearest.h"
#include "spec/schema.h"
#include "spec/spec.h"
#include "spec/to_yaml.h"

namespace muster::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

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

std::string ListTypeText(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "list of layers, as in [relu, {linear: {out_features: 10}}]";
    case FieldDescriptor::CPPTYPE_STRING:
      return "list of texts";
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return "list of numbers";
    default:
      return "list of whole numbers";
  }
}

std::string TypeText(const FieldDescriptor& field) {
  if (field.is_map()) return "names with texts, as in {NAME: value}";
  if (field.is_repeated()) return ListTypeText(field);
  switch (FormOf(field)) {
    case FieldForm::kDuration:
      return "duration, as in 90s, 10m or 1.5h";
    case FieldForm::kSize:
      return "size, as in 25MiB";
    case FieldForm::kNodeCount:
      return "whole number above 0, or {min: …, max: …}";
    case FieldForm::kLostCoordinator:
      return "continue, or {stop_after: …}";
    case FieldForm::kLayer:
    case FieldForm::kPlain:
      break;
  }
  if (field.message_type() != nullptr) {
    return field.message_type()->field_count() > 0 ? "fields" : "a bare word";
  }
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
constexpr const char* kProbes[] = {
    R"(train:
  model: {name: small_cnn}
  dataset: {}
  checkpoint: {}
  tensorboard: {}
  ema: {}
  augment: {random_resized_crop: {}, random_erasing: {}}
  schedule: {name: step}
  optimizer: {})",
    R"(train: {model: {name: mlp}, optimizer: {name: adamw}, objective: {name: nt_xent},
  precision: O1, mixed_precision: {loss_scale: {initial: 1}}})",
    R"(train:
  model:
    layers: [conv2d, batch_norm2d, max_pool2d, avg_pool2d, linear, dropout, residual]
  optimizer: {name: lars})",
};

// What ApplyDefaults put into `after` at this path where `before` has nothing; empty for nothing.
// Of the elements of a list, the first that has something.
std::string PutBetween(const Message& before, const Message& after,
                       absl::Span<const FieldDescriptor* const> path) {
  const FieldDescriptor& field = *path[0];
  const Reflection& reflection = *after.GetReflection();
  if (path.size() == 1) {
    const bool given = !field.is_repeated() && reflection.HasField(before, &field);
    return !given && IsShown(after, field) ? ValueText(after, field) : "";
  }
  if (!field.is_repeated()) {
    // A layer is of one kind: the others are not there.
    if (field.containing_oneof() != nullptr && !reflection.HasField(after, &field)) return "";
    return PutBetween(reflection.GetMessage(before, &field), reflection.GetMessage(after, &field),
                      path.subspan(1));
  }
  for (int i = 0; i < reflection.FieldSize(before, &field); ++i) {
    const std::string value =
        PutBetween(reflection.GetRepeatedMessage(before, &field, i),
                   reflection.GetRepeatedMessage(after, &field, i), path.subspan(1));
    if (!value.empty()) return value;
  }
  return "";
}

std::string AppliedDefault(const std::vector<const FieldDescriptor*>& path) {
  const FieldDescriptor& field = *path.back();
  const bool fields = FormOf(field) == FieldForm::kPlain || FormOf(field) == FieldForm::kLayer;
  if (HasFields(field) && fields) return "";
  for (const char* probe : kProbes) {
    const v1::JobSpec before = *Parse(probe, "probe");
    v1::JobSpec after = before;
    ApplyDefaults(after);
    const std::string value = PutBetween(before, after, path);
    if (!value.empty()) return value;
  }
  return "";
}

// `message` lies within those of `outer`: layers within layers are told once.
void AddPaths(const Descriptor& message, const std::string& where,
              std::vector<const Descriptor*> outer, std::vector<std::string>& paths) {
  outer.push_back(&message);
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string path = JoinPath(where, field.name());
    paths.push_back(path);
    const bool told = std::find(outer.begin(), outer.end(), field.message_type()) != outer.end();
    if (HasFields(field) && !told) AddPaths(*field.message_type(), path, outer, paths);
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
  AddPaths(*v1::JobSpec::descriptor(), "", {}, paths);
  return paths;
}

std::vector<std::string> WordsOf(absl::string_view path) {
  const auto fields = Resolve(path);
  if (!fields.ok() || fields->empty()) return {};
  return NotesOn(*fields->back()).words;
}

}  // namespace muster::spec
