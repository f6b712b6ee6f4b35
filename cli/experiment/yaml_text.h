// Helpers to read a YAML file with known keys and to collect all errors with their lines.
#ifndef MUSTER_CLI_EXPERIMENT_YAML_TEXT_H_
#define MUSTER_CLI_EXPERIMENT_YAML_TEXT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "yaml-cpp/yaml.h"

namespace muster::cli {

// Collects errors while a document is read. Not thread-safe.
class YamlErrors {
 public:
  explicit YamlErrors(std::string source) : source_(std::move(source)) {}

  void Add(const YAML::Mark& mark, absl::string_view text);
  // "grid.ranks: expected …".
  void Add(const YAML::Node& node, absl::string_view where, absl::string_view text);
  bool empty() const { return errors_.empty(); }
  // INVALID_ARGUMENT with one line per error; OK if there is none.
  absl::Status status() const;

  // The scalar's text. Adds an error and returns "" if the node is not a scalar.
  std::string Text(const YAML::Node& node, absl::string_view where);
  // Calls `read` for each key of a map, in order. Adds errors for nodes that are not maps and for
  // duplicate keys.
  void EachKey(const YAML::Node& node, absl::string_view where,
               const std::function<void(const std::string&, const YAML::Node&)>& read);
  // Like EachKey, and adds an error with a suggestion for each key that is not in `known`.
  void EachKnownKey(const YAML::Node& node, absl::string_view where,
                    const std::vector<std::string>& known,
                    const std::function<void(const std::string&, const YAML::Node&)>& read);

 private:
  const std::string source_;
  std::vector<std::string> errors_;
};

// The node in YAML's flow style, on one line.
std::string FlowText(const YAML::Node& node);

// The value of a top-level key, on the same lines as in `text`, with everything else blanked, so
// that later errors name the right lines. Falls back to flow style if the section cannot be
// separated.
std::string SectionText(const std::string& text, const YAML::Node& document,
                        const std::string& key);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_YAML_TEXT_H_
