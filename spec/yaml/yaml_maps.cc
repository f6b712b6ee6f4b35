// Reads maps: environment variables, labels, and the matrix and the tasks of an array.
#include <set>

#include "absl/strings/str_cat.h"
#include "common/text/nearest.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/schema.h"
#include "spec/yaml/yaml_reader.h"

namespace muster::spec {
namespace {

constexpr char kSecretForm[] = "a string or {secret: NAME}";

// The size of each task of an array, without its values, for the limit on the size of a spec.
constexpr size_t kTaskBytes = 16;

const FieldDescriptor& SecretEnv() {
  return *v1::JobSpec::descriptor()->FindFieldByNumber(v1::JobSpec::kSecretEnvFieldNumber);
}

const FieldDescriptor& Env() {
  return *v1::JobSpec::descriptor()->FindFieldByNumber(v1::JobSpec::kEnvFieldNumber);
}

void SetMapEntry(const std::string& key, const std::string& value, const FieldDescriptor& field,
                 Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const FieldDescriptor* key_field = field.message_type()->map_key();
  const FieldDescriptor* value_field = field.message_type()->map_value();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    Message* entry = reflection.MutableRepeatedMessage(&message, &field, i);
    if (entry->GetReflection()->GetString(*entry, key_field) == key) {
      return entry->GetReflection()->SetString(entry, value_field, value);
    }
  }
  Message* entry = reflection.AddMessage(&message, &field);
  entry->GetReflection()->SetString(entry, key_field, key);
  entry->GetReflection()->SetString(entry, value_field, value);
}

void AddMapEntry(const std::string& key, const std::string& value, const FieldDescriptor& field,
                 Message& message) {
  Message* entry = message.GetReflection()->AddMessage(&message, &field);
  entry->GetReflection()->SetString(entry, field.message_type()->map_key(), key);
  entry->GetReflection()->SetString(entry, field.message_type()->map_value(), value);
}

void RemoveMapEntry(const std::string& key, const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    if (entry.GetReflection()->GetString(entry, field.message_type()->map_key()) != key) continue;
    reflection.SwapElements(&message, &field, i, reflection.FieldSize(message, &field) - 1);
    return reflection.RemoveLast(&message, &field);
  }
}

// The text that `--set FIELD=text` reads as `node`.
std::string OverrideText(const YAML::Node& node) {
  YAML::Emitter out;
  out.SetMapFormat(YAML::Flow);
  out.SetSeqFormat(YAML::Flow);
  if (!node.IsScalar()) {
    out << node;
    return out.c_str();
  }
  const std::string& text = node.Scalar();
  try {
    const YAML::Node plain = YAML::Load(text);
    if (plain.IsScalar() && plain.Scalar() == text) return text;
  } catch (const YAML::Exception&) {
    // It needs quotes.
  }
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

}  // namespace

void YamlReader::ReadMap(const YAML::Node& node, const std::string& where,
                         const FieldDescriptor& field, Message& message) {
  if (node.IsNull()) return;
  const bool environment = FormOf(field) == FieldForm::kEnvironment;
  if (!node.IsMap()) {
    AddError(node.Mark(), where, ": expected a map, as in {NAME: value}, found ", Found(node));
    return;
  }
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (done()) return;
    std::string key;
    if (!ReadScalar(entry.first, where, "a name", key)) continue;
    if (!seen.insert(key).second) {
      AddError(entry.first.Mark(), where, ": ", Quoted(key), " is given twice");
      continue;
    }
    if (environment && entry.second.IsMap()) {
      ReadSecret(key, entry.second, where, message);
      continue;
    }
    std::string value;
    if (!ReadScalar(entry.second, absl::StrCat(where, " ", Quoted(key)),
                    environment ? kSecretForm : "a string", value)) {
      continue;
    }
    AddMapEntry(key, value, field, message);
  }
}

void YamlReader::ReadMapEntry(const std::string& key, const YAML::Node& value,
                              const std::string& where, const FieldDescriptor& field,
                              Message& message) {
  const bool environment = FormOf(field) == FieldForm::kEnvironment;
  if (environment && value.IsMap()) {
    RemoveMapEntry(key, field, message);
    return ReadSecret(key, value, where, message);
  }
  std::string text;
  if (!ReadScalar(value, absl::StrCat(where, " ", Quoted(key)),
                  environment ? kSecretForm : "a string", text)) {
    return;
  }
  if (environment) RemoveMapEntry(key, SecretEnv(), message);
  if (&field == &SecretEnv()) RemoveMapEntry(key, Env(), message);
  SetMapEntry(key, text, field, message);
}

void YamlReader::ReadSecret(const std::string& key, const YAML::Node& value,
                            const std::string& where, Message& message) {
  const std::string path = absl::StrCat(where, " ", Quoted(key));
  const YAML::Node secret = value["secret"];
  if (value.size() != 1 || !secret.IsDefined()) {
    return AddError(value.Mark(), path, ": expected ", kSecretForm, ", found a map");
  }
  std::string name;
  if (!ReadScalar(secret, path + ".secret", "the name of a secret", name)) return;
  SetMapEntry(key, name, SecretEnv(), message);
}

void YamlReader::ReadPaths(const YAML::Node& node, const std::string& where, absl::string_view form,
                           absl::FunctionRef<void(const std::string&, const YAML::Node&)> read) {
  if (!node.IsMap()) {
    return AddError(node.Mark(), where, ": expected ", form, ", found ", Found(node));
  }
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (done()) return;
    std::string path;
    if (!ReadScalar(entry.first, where, "the path of a field", path)) continue;
    if (!seen.insert(path).second) {
      AddError(entry.first.Mark(), where, ": ", Quoted(path), " is given twice");
      continue;
    }
    read(path, entry.second);
  }
}

bool YamlReader::ReadOverrideValue(const YAML::Node& node, const std::string& where,
                                   std::string& text) {
  if (node.IsNull()) {
    AddError(node.Mark(), where + ": expected a value, found nothing");
    return false;
  }
  text = OverrideText(node);
  return Count(node.Mark(), text.size());
}

void YamlReader::ReadMatrix(const YAML::Node& node, const std::string& where,
                            const FieldDescriptor& field, Message& message) {
  if (node.IsNull()) return;
  ReadPaths(node, where, "a map of lists, as in {train.epochs: [1, 2]}",
            [&](const std::string& axis, const YAML::Node& values) {
              ReadAxis(axis, values, where, field, message);
            });
}

void YamlReader::ReadAxis(const std::string& axis, const YAML::Node& values,
                          const std::string& where, const FieldDescriptor& field,
                          Message& message) {
  const std::string path = absl::StrCat(where, " ", Quoted(axis));
  if (!values.IsSequence()) {
    return AddError(values.Mark(), path, ": expected a list of values, as in [a, b], found ",
                    Found(values));
  }
  v1::ArrayAxis read;
  read.set_field(axis);
  for (size_t i = 0; i < values.size() && !done(); ++i) {
    std::string text;
    if (ReadOverrideValue(values[i], absl::StrCat(path, "[", i, "]"), text)) read.add_values(text);
  }
  message.GetReflection()->AddMessage(&message, &field)->CopyFrom(read);
}

void YamlReader::ReadTaskValues(const YAML::Node& node, const std::string& where, Message& task) {
  v1::ArrayTaskValues read;
  if (!Count(node.Mark(), kTaskBytes)) return;
  ReadPaths(node, where, "a map, as in {train.epochs: 1}",
            [&](const std::string& field, const YAML::Node& value) {
              std::string text;
              const std::string path = absl::StrCat(where, " ", Quoted(field));
              if (!ReadOverrideValue(value, path, text)) return;
              v1::ArrayValue& added = *read.add_values();
              added.set_field(field);
              added.set_value(text);
            });
  task.CopyFrom(read);
}

}  // namespace muster::spec
