#include "cli/experiment/yaml_text.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/text/nearest.h"

namespace muster::cli {

void YamlErrors::Add(const YAML::Mark& mark, absl::string_view text) {
  errors_.push_back(mark.is_null() ? absl::StrCat(source_, ": ", text)
                                   : absl::StrCat(source_, ":", mark.line + 1, ": ", text));
}

void YamlErrors::Add(const YAML::Node& node, absl::string_view where, absl::string_view text) {
  Add(node.Mark(), absl::StrCat(where, ": ", text));
}

absl::Status YamlErrors::status() const {
  if (errors_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors_, "\n"));
}

std::string YamlErrors::Text(const YAML::Node& node, absl::string_view where) {
  if (node.IsScalar()) return node.Scalar();
  Add(node, where, "expected a value");
  return "";
}

void YamlErrors::EachKey(const YAML::Node& node, absl::string_view where,
                         const std::function<void(const std::string&, const YAML::Node&)>& read) {
  if (!node.IsMap()) return Add(node, where, "expected fields, as in {name: value}");
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      Add(entry.first, where, "a field's name must be a scalar");
    } else if (!seen.insert(entry.first.Scalar()).second) {
      Add(entry.first, where, absl::StrCat(Quoted(entry.first.Scalar()), " is given twice"));
    } else {
      read(entry.first.Scalar(), entry.second);
    }
  }
}

void YamlErrors::EachKnownKey(
    const YAML::Node& node, absl::string_view where, const std::vector<std::string>& known,
    const std::function<void(const std::string&, const YAML::Node&)>& read) {
  EachKey(node, where, [&](const std::string& key, const YAML::Node& value) {
    if (std::find(known.begin(), known.end(), key) != known.end()) return read(key, value);
    Add(value, where, absl::StrCat("unknown field ", Quoted(key), DidYouMean(key, known)));
  });
}

std::string FlowText(const YAML::Node& node) {
  YAML::Emitter emitter;
  emitter.SetMapFormat(YAML::Flow);
  emitter.SetSeqFormat(YAML::Flow);
  emitter << node;
  return emitter.c_str();
}

std::string SectionText(const std::string& text, const YAML::Node& document,
                        const std::string& key) {
  const YAML::Node value = document[key];
  const YAML::Mark begin = value.Mark();
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  size_t end = lines.size();
  for (const auto& entry : document) {
    const size_t line = static_cast<size_t>(entry.first.Mark().line);
    if (line > static_cast<size_t>(begin.line)) end = std::min(end, line);
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i < static_cast<size_t>(begin.line) || i >= end) lines[i].clear();
  }
  std::string& first = lines[static_cast<size_t>(begin.line)];
  std::fill_n(first.begin(), std::min(first.size(), static_cast<size_t>(begin.column)), ' ');
  const std::string section = absl::StrJoin(lines, "\n");
  // Documents in flow style or with aliases cannot be split by lines.
  const std::string whole = FlowText(value);
  try {
    if (FlowText(YAML::Load(section)) == whole) return section;
  } catch (const YAML::Exception&) {
  }
  return whole;
}

}  // namespace muster::cli
