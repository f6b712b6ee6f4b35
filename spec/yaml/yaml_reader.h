// Reads a YAML node into a protobuf message, field by field along the message's descriptor.
#ifndef MUSTER_SPEC_YAML_YAML_READER_H_
#define MUSTER_SPEC_YAML_YAML_READER_H_

#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "spec/rules/problems.h"
#include "spec/schema.h"
#include "yaml-cpp/yaml.h"

namespace muster::spec {

// Collects all errors, each with source and line, instead of stopping at the first. Not
// thread-safe. May throw YAML::Exception, which the caller must catch.
class YamlReader {
 public:
  // `with_lines`: whether errors include line numbers.
  YamlReader(absl::string_view source, bool with_lines)
      : source_(source), with_lines_(with_lines) {}

  // `where` is the message's path within the spec.
  void ReadMessage(const YAML::Node& node, const std::string& where, Message& message);
  // Replaces the field's value.
  void ReadField(const YAML::Node& node, const std::string& where, const FieldDescriptor& field,
                 Message& message);
  // Adds an error for a field of `message` that does not exist.
  void AddUnknownField(const YAML::Mark& mark, const Descriptor& message, const std::string& where,
                       absl::string_view name);
  // Adds an entry to a map<string, string>, or replaces the value of an existing key. A secret of
  // `env` is stored in secret_env.
  void ReadMapEntry(const std::string& key, const YAML::Node& value, const std::string& where,
                    const FieldDescriptor& field, Message& message);

  // Adds the field at the path `axis`, which is not there yet, to a matrix.
  void ReadAxis(const std::string& axis, const YAML::Node& values, const std::string& where,
                const FieldDescriptor& field, Message& message);

  // `parts` are the text of the error.
  template <typename... Parts>
  void AddError(const YAML::Mark& mark, const Parts&... parts) {
    AddErrorText(mark, absl::StrCat(parts...));
  }
  // OK, or one line per error.
  absl::Status status() const;
  const UnreadFields& unread() const { return unread_; }

 private:
  void AddErrorText(const YAML::Mark& mark, absl::string_view text);
  void ReadValue(const YAML::Node& node, const std::string& where, const FieldDescriptor& field,
                 Message& message);
  // Whether to stop reading because of the spec's size or the number of errors.
  bool done() const { return too_large_ || errors_.size() > kErrors; }
  void ReadRepeated(const YAML::Node& node, const std::string& where, const FieldDescriptor& field,
                    Message& message);
  // Reads a layer: its name, or a map with its name as the only field.
  void ReadLayer(const YAML::Node& node, const std::string& where, Message& layer);
  // Reads a file: its path, or a map.
  void ReadFile(const YAML::Node& node, const std::string& where, Message& file);
  void ReadMap(const YAML::Node& node, const std::string& where, const FieldDescriptor& field,
               Message& message);
  // Calls `read` for each path and its value in a map whose keys are paths of fields; `form` is an
  // example of such a map.
  void ReadPaths(const YAML::Node& node, const std::string& where, absl::string_view form,
                 absl::FunctionRef<void(const std::string&, const YAML::Node&)> read);
  // The value as in `--set FIELD=value`. False, with an error added, if there is none.
  bool ReadOverrideValue(const YAML::Node& node, const std::string& where, std::string& text);
  // Reads a map from paths of fields to values.
  void ReadTaskValues(const YAML::Node& node, const std::string& where, Message& task);
  // Reads a map from paths of fields to lists of values.
  void ReadMatrix(const YAML::Node& node, const std::string& where, const FieldDescriptor& field,
                  Message& message);
  // Reads the map `value` of an environment variable: {secret: NAME}.
  void ReadSecret(const std::string& key, const YAML::Node& value, const std::string& where,
                  Message& message);
  void ReadDuration(const YAML::Node& node, const std::string& where, const FieldDescriptor& field,
                    Message& duration);
  void ReadNodeCount(const YAML::Node& node, const std::string& where, Message& count);
  void ReadLostCoordinator(const YAML::Node& node, const std::string& where, Message& policy);
  // False, with an error added, unless the node is a scalar and the spec stays within its size
  // limit.
  bool ReadScalar(const YAML::Node& node, const std::string& where, absl::string_view expected,
                  std::string& text);
  // Adds to the size of the spec. False, with an error added, if it exceeds limits::kSpecBytes.
  bool Count(const YAML::Mark& mark, size_t bytes);
  // Sets the field or, if it is repeated, appends to it.
  void ReadNumberOrText(const YAML::Node& node, const std::string& where,
                        const FieldDescriptor& field, Message& message);

  static constexpr size_t kErrors = 20;  // maximum number of reported errors

  const std::string source_;
  const bool with_lines_;
  // Bytes of scalars and list elements read so far, counting each use of an alias, so that anchors
  // cannot expand a small text into a huge spec.
  size_t read_bytes_ = 0;
  bool too_large_ = false;
  int layer_depth_ = 0;  // limited, because an anchor may contain itself
  std::vector<std::string> errors_;
  UnreadFields unread_;
  std::set<std::string> read_;  // paths of the fields that were read
};

// "a list", "nothing", ... for errors.
absl::string_view KindOf(const YAML::Node& node);
// The node's text, quoted, or its kind.
std::string Found(const YAML::Node& node);

// Sets a field from a value in the spec's syntax: "3", "25MiB", "{max: 3}". INVALID_ARGUMENT if the
// field does not accept the value.
absl::Status SetField(absl::string_view value, const FieldDescriptor& field, Message& message);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_YAML_YAML_READER_H_
