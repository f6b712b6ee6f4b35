// Reads a YAML node into a protobuf message, field by field along the message's descriptor.
#ifndef MUSTER_SPEC_YAML_READER_H_
#define MUSTER_SPEC_YAML_READER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "yaml-cpp/yaml.h"

namespace muster::spec {

// Collects every error it meets, each with source and line, and goes on. Not thread-safe. May throw
// YAML::Exception; the caller catches.
class YamlReader {
 public:
  // `with_lines`: whether lines of the source mean anything to its reader.
  YamlReader(absl::string_view source, bool with_lines)
      : source_(source), with_lines_(with_lines) {}

  // `where` is the message's path within the spec.
  void ReadMessage(const YAML::Node& node, const std::string& where,
                   google::protobuf::Message& message);
  // Replaces what the field held.
  void ReadField(const YAML::Node& node, const std::string& where,
                 const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message& message);
  // One more entry of a map<string, string>, or a new value for its key.
  void ReadMapEntry(const std::string& key, const YAML::Node& value, const std::string& where,
                    const google::protobuf::FieldDescriptor& field,
                    google::protobuf::Message& message);

  void AddError(const YAML::Mark& mark, absl::string_view text);
  // OK, or one line per error.
  absl::Status status() const;

 private:
  // Nothing more is worth reading.
  bool done() const { return too_large_ || errors_.size() > kErrors; }
  void ReadRepeated(const YAML::Node& node, const std::string& where,
                    const google::protobuf::FieldDescriptor& field,
                    google::protobuf::Message& message);
  // A bare word, or a single field.
  void ReadLayer(const YAML::Node& node, const std::string& where,
                 google::protobuf::Message& layer);
  void ReadMap(const YAML::Node& node, const std::string& where,
               const google::protobuf::FieldDescriptor& field, google::protobuf::Message& message);
  void ReadDuration(const YAML::Node& node, const std::string& where,
                    google::protobuf::Message& duration);
  void ReadNodeCount(const YAML::Node& node, const std::string& where,
                     google::protobuf::Message& count);
  void ReadLostCoordinator(const YAML::Node& node, const std::string& where,
                           google::protobuf::Message& policy);
  // False, with the error noted, unless the node is a scalar with a value within the bounds.
  bool ReadScalar(const YAML::Node& node, const std::string& where, absl::string_view expected,
                  std::string& text);
  // False, with the error noted, when all that was read takes more than a spec may.
  bool Count(const YAML::Mark& mark, size_t bytes);
  // Sets or, for a repeated field, adds.
  void ReadNumberOrText(const YAML::Node& node, const std::string& where,
                        const google::protobuf::FieldDescriptor& field,
                        google::protobuf::Message& message);

  static constexpr size_t kErrors = 20;  // reported at most

  const std::string source_;
  const bool with_lines_;
  // Bytes of scalars and list elements read so far, each use of an alias counted: anchors make no
  // small text a huge spec.
  size_t read_bytes_ = 0;
  bool too_large_ = false;
  int layer_depth_ = 0;  // an anchor may even contain itself
  std::vector<std::string> errors_;
};

// Sets a field from a value in the spec's syntax: "3", "25MiB", "{max: 3}". INVALID_ARGUMENT for a
// value that the field does not take.
absl::Status SetField(absl::string_view value, const google::protobuf::FieldDescriptor& field,
                      google::protobuf::Message& message);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_YAML_READER_H_
