#include "trainer/checkpoint/training_identity.h"

#include <charconv>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/sha256.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "spec/fields.h"
#include "spec/schema.h"
#include "spec/yaml/yaml_reader.h"

namespace muster::train {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr absl::string_view kRoot = "train";
constexpr size_t kShownDifferences = 8;

v1::TrainSpec Essential(const v1::TrainSpec& spec) {
  v1::TrainSpec essential;
  *essential.mutable_model() = spec.model();
  *essential.mutable_dataset() = spec.dataset();
  essential.mutable_dataset()->clear_path();
  essential.mutable_dataset()->clear_center_crop();
  essential.mutable_dataset()->clear_resident();
  essential.set_global_batch(spec.global_batch());
  essential.set_image_size(spec.image_size());
  essential.mutable_optimizer()->set_name(spec.optimizer().name());
  essential.set_precision(spec.precision());
  if (spec.has_mixed_precision()) {
    essential.mutable_mixed_precision()->set_dtype(spec.mixed_precision().dtype());
  }
  *essential.mutable_objective() = spec.objective();
  *essential.mutable_augment() = spec.augment();
  essential.set_seed(spec.seed());
  essential.set_drop_last(spec.drop_last());
  essential.set_sync_batch_norm(spec.sync_batch_norm());
  essential.set_accumulation_steps(spec.accumulation_steps());
  return essential;
}

// Shortest decimal text that is read as the same value.
template <typename Number>
std::string ShortestText(Number value) {
  char text[64];
  const auto result = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, result.ptr);
}

// Text of a field that is not a message; of a list, of the element at `index`. Does not depend on
// the release, in contrast to the texts of Protocol Buffers.
std::string ScalarText(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return (list ? reflection.GetRepeatedBool(message, &field, index)
                   : reflection.GetBool(message, &field))
                 ? "true"
                 : "false";
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(list ? reflection.GetRepeatedUInt32(message, &field, index)
                               : reflection.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(list ? reflection.GetRepeatedUInt64(message, &field, index)
                               : reflection.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return ShortestText(list ? reflection.GetRepeatedFloat(message, &field, index)
                               : reflection.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return ShortestText(list ? reflection.GetRepeatedDouble(message, &field, index)
                               : reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return spec::EnumText(field, reflection.GetEnumValue(message, &field));
    default:  // the spec has no other types
      return list ? reflection.GetRepeatedString(message, &field, index)
                  : reflection.GetString(message, &field);
  }
}

std::string ValueText(const Message& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return ScalarText(message, field, -1);
  std::vector<std::string> elements;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    elements.push_back(ScalarText(message, field, i));
  }
  return absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
}

// Adds all fields of the message that are set. A layer also has its kind: "train.model.layers[2]"
// is "conv2d".
void AddFields(const Message& message, const std::string& path, TrainingFields& fields) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (!spec::IsSet(message, field)) continue;
    const std::string name = absl::StrCat(path, ".", field.name());
    if (field.message_type() == nullptr) {
      fields[name] = ValueText(message, field);
    } else if (!field.is_repeated()) {
      AddFields(reflection.GetMessage(message, &field), name, fields);
    } else {
      for (int k = 0; k < reflection.FieldSize(message, &field); ++k) {
        const Message& layer = reflection.GetRepeatedMessage(message, &field, k);
        const std::string element = absl::StrCat(name, "[", k, "]");
        const FieldDescriptor* const kind = layer.GetReflection()->GetOneofFieldDescriptor(
            layer, layer.GetDescriptor()->oneof_decl(0));
        fields[element] = kind != nullptr ? kind->name() : "";
        AddFields(layer, element, fields);
      }
    }
  }
}

// The default of a field by its path; empty if this release does not have the field, and for
// elements of lists.
std::optional<std::string> DefaultText(absl::string_view path) {
  if (!absl::ConsumePrefix(&path, absl::StrCat(kRoot, "."))) return std::nullopt;
  std::unique_ptr<Message> message(v1::TrainSpec::default_instance().New());
  const std::vector<absl::string_view> names = absl::StrSplit(path, '.');
  for (size_t i = 0;; ++i) {
    const absl::string_view name = names[i].substr(0, names[i].find('['));
    const FieldDescriptor* const field =
        message->GetDescriptor()->FindFieldByName(std::string(name));
    if (field == nullptr) return std::nullopt;
    if (i + 1 == names.size()) {
      if (field->message_type() != nullptr) return std::nullopt;
      const absl::string_view value = spec::FieldOf(*field).default_value;
      if (!value.empty() && !spec::SetField(value, *field, *message).ok()) return std::nullopt;
      return ValueText(*message, *field);
    }
    if (field->message_type() == nullptr) return std::nullopt;
    message.reset(google::protobuf::MessageFactory::generated_factory()
                      ->GetPrototype(field->message_type())
                      ->New());
  }
}

std::optional<std::string> ValueOf(const TrainingFields& fields, const std::string& path) {
  const auto found = fields.find(path);
  return found != fields.end() ? found->second : DefaultText(path);
}

// "train.seed: 1, now 2".
std::vector<std::string> Differences(const TrainingFields& saved, const TrainingFields& now) {
  std::set<std::string> paths;
  for (const auto& field : saved) paths.insert(field.first);
  for (const auto& field : now) paths.insert(field.first);
  std::vector<std::string> differences;
  for (const std::string& path : paths) {
    const auto before = ValueOf(saved, path), after = ValueOf(now, path);
    if (before == after) continue;
    differences.push_back(
        absl::StrCat(path, ": ", before.value_or("none"), ", now ", after.value_or("none")));
  }
  return differences;
}

}  // namespace

TrainingIdentity TrainingIdentityOf(const v1::TrainSpec& spec, uint32_t shares) {
  const v1::TrainSpec essential = Essential(spec);
  TrainingIdentity training;
  AddFields(essential, std::string(kRoot), training.fields);
  if (spec.deterministic() == v1::TrainSpec::ELASTIC) {
    training.fields[absl::StrCat(kRoot, ".deterministic")] =
        absl::StrCat("elastic up to ", shares, shares == 1 ? " rank" : " ranks");
  }
  // As earlier releases computed it. The message has no maps, so its text is deterministic.
  training.digest = Sha256Hex(essential.ShortDebugString());
  return training;
}

std::string TrainingDifferences(const CheckpointState& state, const TrainingIdentity& training) {
  if (state.training.empty()) {
    if (state.training_digest == training.digest) return "";
    return "its model, dataset, batch, precision, seed or augmentation differs; an earlier "
           "release has written it without details";
  }
  std::vector<std::string> differences = Differences(state.training, training.fields);
  if (differences.size() > kShownDifferences) {
    const size_t hidden = differences.size() - kShownDifferences;
    differences.resize(kShownDifferences);
    differences.push_back(absl::StrCat("and ", hidden, " more"));
  }
  return absl::StrJoin(differences, "; ");
}

}  // namespace muster::train
