// Reading a YAML file of a few known keys, with every error noted by line.
#ifndef MUSTER_CLI_EXPERIMENT_YAML_TEXT_H_
#define MUSTER_CLI_EXPERIMENT_YAML_TEXT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "yaml-cpp/yaml.h"

namespace muster::cli {

// Not thread-safe.
class YamlErrors {
 public:
  explicit YamlErrors(std::string source) : source_(std::move(source)) {}

  void Add(const YAML::Mark& mark, absl::string_view text);
  // "grid.ranks: expected …".
  void Add(const YAML::Node& node, absl::string_view where, absl::string_view text);
  bool empty() const { return errors_.empty(); }
  // INVALID_ARGUMENT, a line per error; OK when there is none.
  absl::Status status() const;

  // The scalar's text; empty, with the error noted, for anything else.
  std::string Text(const YAML::Node& node, absl::string_view where);
  // Calls `read` for each key of a map, in order; notes what is no map, and keys that come twice.
  void EachKey(const YAML::Node& node, absl::string_view where,
               const std::function<void(const std::string&, const YAML::Node&)>& read);
  // The same with keys that are all among `known`; another one is noted with the nearest.
  void EachKnownKey(const YAML::Node& node, absl::string_view where,
                    const std::vector<std::string>& known,
                    const std::function<void(const std::string&, const YAML::Node&)>& read);

 private:
  const std::string source_;
  std::vector<std::string> errors_;
};

// The node in YAML's flow style, on one line.
std::string FlowText(const YAML::Node& node);

// The value of a top-level key as it stands in `text`, on the same lines, with all else blank, so
// that what reads it names the right lines. In flow style where it cannot be told apart.
std::string SectionText(const std::string& text, const YAML::Node& document,
                        const std::string& key);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_YAML_TEXT_H_
