#include "cli/experiment/experiment.h"

#include <algorithm>
#include <exception>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/experiment/yaml_text.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/text/nearest.h"
#include "proto/muster/v1/job.pb.h"
#include "yaml-cpp/yaml.h"

namespace muster::cli {
namespace {

using Parameters = std::map<std::string, std::string>;

bool IsWordCharacter(char c) {
  return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
}

bool IsWord(const std::string& text) {
  return !text.empty() && absl::ascii_islower(text[0]) &&
         std::all_of(text.begin(), text.end(), IsWordCharacter);
}

// Replaces `$name` by the parameter's value; other names are left alone, as a shell's $HOME.
std::string Substituted(const std::string& text, const Parameters& parameters) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text[i] == '$') {
      while (end < text.size() && IsWordCharacter(text[end])) ++end;
    }
    const auto found = parameters.find(text.substr(i + 1, end - i - 1));
    if (text[i] == '$' && found != parameters.end()) {
      result += found->second;
    } else {
      result.append(text, i, end - i);
    }
    i = end;
  }
  return result;
}

class Reader {
 public:
  explicit Reader(const std::string& source) : errors_(source) {}

  Parameters ReadParameters(const YAML::Node& document) {
    Parameters parameters;
    if (!document["parameters"]) return parameters;
    const auto* spec = v1::JobSpec::descriptor();
    errors_.EachKey(document["parameters"], "parameters",
                    [&](const std::string& name, const YAML::Node& value) {
                      if (!IsWord(name)) {
                        errors_.Add(value, absl::StrCat("parameters.", name),
                                    "a name may contain only lower-case letters, digits and '_'");
                      } else if (spec->FindFieldByName(name) != nullptr) {
                        errors_.Add(value, absl::StrCat("parameters.", name),
                                    "is also a field of the spec; rename the parameter");
                      } else {
                        parameters[name] = errors_.Text(value, absl::StrCat("parameters.", name));
                      }
                    });
    return parameters;
  }

  void Read(const YAML::Node& document, const std::string& text, Experiment& experiment) {
    experiment_ = &experiment;
    errors_.EachKnownKey(
        document, "the experiment",
        {"experiment", "parameters", "base", "grid", "skip", "baseline", "plots", "found"},
        [](const std::string&, const YAML::Node&) {});
    if (!document.IsMap()) return;
    ReadHead(document["experiment"]);
    if (!document["base"] || !document["base"].IsMap()) {
      errors_.Add(document, "base", "expected a job spec");
    } else {
      experiment.base_text = SectionText(text, document, "base");
    }
    // The sections below refer to its axes.
    if (document["grid"]) ReadGrid(document["grid"]);
    if (document["skip"]) ReadSkips(document["skip"]);
    if (document["baseline"]) ReadBaseline(document["baseline"]);
    if (document["plots"]) {
      errors_.Add(document["plots"], "plots", "plots are not drawn; remove it and use results.csv");
    }
    if (document["found"]) experiment.found = errors_.Text(document["found"], "found");
  }

  YamlErrors& errors() { return errors_; }

 private:
  void ReadHead(const YAML::Node& node) {
    if (!node) return errors_.Add(YAML::Mark::null_mark(), "missing experiment: {name: …}");
    errors_.EachKnownKey(
        node, "experiment", {"name", "title", "repeat"},
        [&](const std::string& key, const YAML::Node& value) {
          const std::string text = errors_.Text(value, absl::StrCat("experiment.", key));
          if (key == "name") experiment_->name = text;
          if (key == "title") experiment_->title = text;
          if (key != "repeat") return;
          uint32_t count = 0;
          if (absl::SimpleAtoi(text, &count) && count >= 1 && count <= kMaxRepeat) {
            experiment_->repeat = count;
          } else {
            errors_.Add(value, "experiment.repeat",
                        absl::StrCat("expected a number from 1 to ", kMaxRepeat));
          }
        });
    const std::string& name = experiment_->name;
    const auto may_be_in_name = [](char c) {
      return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
    };
    if (name.empty() || name.size() > limits::kNameLength || !absl::ascii_isalnum(name[0]) ||
        !std::all_of(name.begin(), name.end(), may_be_in_name)) {
      errors_.Add(node, "experiment.name",
                  absl::StrCat("expected at most ", limits::kNameLength,
                               " lower-case letters, digits and '-'"));
    }
  }

  void ReadGrid(const YAML::Node& node) {
    errors_.EachKey(node, "grid", [&](const std::string& name, const YAML::Node& value) {
      const std::string where = absl::StrCat("grid.", name);
      Axis axis;
      axis.name = name;
      if (!IsWord(name)) {
        errors_.Add(value, where,
                    "the name of an axis may contain only lower-case letters, digits and '_'");
      }
      if (value.IsMap()) {
        ReadFieldAxis(value, where, axis);
      } else if (value.IsSequence()) {
        for (const YAML::Node& entry : value) ReadLabelled(entry, where, axis);
      } else {
        errors_.Add(value, where, "expected [{label: …, set: {…}}, …] or {field: …, values: […]}");
      }
      CheckLabels(value, where, axis);
      experiment_->axes.push_back(std::move(axis));
    });
  }

  void ReadFieldAxis(const YAML::Node& node, const std::string& where, Axis& axis) {
    std::string field;
    std::vector<YAML::Node> values;
    errors_.EachKnownKey(node, where, {"field", "values"},
                         [&](const std::string& key, const YAML::Node& value) {
                           if (key == "field") {
                             field = errors_.Text(value, where + ".field");
                           } else if (value.IsSequence()) {
                             for (const YAML::Node& entry : value) values.push_back(entry);
                           } else {
                             errors_.Add(value, where + ".values", "expected a list");
                           }
                         });
    if (field.empty()) errors_.Add(node, where + ".field", "is missing");
    for (const YAML::Node& value : values) {
      const std::string text = errors_.Text(value, where + ".values");
      axis.values.push_back({text, {absl::StrCat(field, "=", FlowText(value))}});
    }
  }

  void ReadLabelled(const YAML::Node& node, const std::string& where, Axis& axis) {
    AxisValue value;
    errors_.EachKnownKey(
        node, where, {"label", "set"}, [&](const std::string& key, const YAML::Node& entry) {
          if (key == "label") {
            value.label = errors_.Text(entry, where + ".label");
            return;
          }
          errors_.EachKey(entry, where + ".set",
                          [&](const std::string& field, const YAML::Node& setting) {
                            value.overrides.push_back(absl::StrCat(field, "=", FlowText(setting)));
                          });
        });
    axis.values.push_back(std::move(value));
  }

  void CheckLabels(const YAML::Node& node, const std::string& where, const Axis& axis) {
    if (axis.values.empty()) errors_.Add(node, where, "has no values");
    std::set<std::string> seen;
    for (const AxisValue& value : axis.values) {
      if (value.label.empty()) {
        errors_.Add(node, where, "a value has no label");
      } else if (value.label.find_first_of(",=") != std::string::npos) {
        errors_.Add(node, where,
                    absl::StrCat(Quoted(value.label), ": a label must not contain ',' or '='"));
      } else if (!seen.insert(value.label).second) {
        errors_.Add(node, where, absl::StrCat(Quoted(value.label), " is given twice"));
      }
    }
  }

  // {axis: label, axis: [label, label]}
  Selection ReadSelection(const YAML::Node& node, const std::string& where) {
    Selection selection;
    errors_.EachKey(node, where, [&](const std::string& name, const YAML::Node& value) {
      const Axis* axis = FindAxis(value, where, name);
      if (axis == nullptr) return;
      std::vector<YAML::Node> nodes;
      if (value.IsSequence()) {
        for (const YAML::Node& entry : value) nodes.push_back(entry);
      } else {
        nodes.push_back(value);
      }
      for (const YAML::Node& entry : nodes) {
        const std::string label = errors_.Text(entry, absl::StrCat(where, ".", name));
        std::vector<std::string> labels;
        for (const AxisValue& known : axis->values) labels.push_back(known.label);
        if (std::find(labels.begin(), labels.end(), label) == labels.end()) {
          errors_.Add(entry, absl::StrCat(where, ".", name),
                      absl::StrCat(Quoted(label), " is not one of ", absl::StrJoin(labels, ", ")));
        }
        selection[name].push_back(label);
      }
    });
    return selection;
  }

  const Axis* FindAxis(const YAML::Node& node, const std::string& where, const std::string& name) {
    std::vector<std::string> names;
    for (const Axis& axis : experiment_->axes) {
      if (axis.name == name) return &axis;
      names.push_back(axis.name);
    }
    errors_.Add(node, where,
                absl::StrCat(Quoted(name), " is not an axis of the grid; its axes are ",
                             absl::StrJoin(names, ", ")));
    return nullptr;
  }

  void ReadSkips(const YAML::Node& node) {
    if (!node.IsSequence()) return errors_.Add(node, "skip", "expected a list");
    for (const YAML::Node& entry : node) {
      SkipRule rule;
      errors_.EachKnownKey(entry, "skip", {"when", "reason"},
                           [&](const std::string& key, const YAML::Node& value) {
                             if (key == "when") rule.when = ReadSelection(value, "skip.when");
                             if (key == "reason") rule.reason = errors_.Text(value, "skip.reason");
                           });
      if (rule.when.empty()) errors_.Add(entry, "skip.when", "is missing");
      if (rule.reason.empty()) errors_.Add(entry, "skip.reason", "is missing");
      experiment_->skips.push_back(std::move(rule));
    }
  }

  void ReadBaseline(const YAML::Node& node) {
    experiment_->baseline = ReadSelection(node, "baseline");
    for (const auto& [axis, labels] : experiment_->baseline) {
      if (labels.size() != 1)
        errors_.Add(node, absl::StrCat("baseline.", axis), "expected one label");
    }
  }

  YamlErrors errors_;
  Experiment* experiment_ = nullptr;
};

// Settings of parameters change them; the others are overrides of the base.
absl::Status ApplySettings(absl::Span<const std::string> settings, Parameters& parameters,
                           std::vector<std::string>& overrides) {
  for (const std::string& setting : settings) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(setting, absl::MaxSplits('=', 1));
    const auto parameter = parameters.find(parts.first);
    if (parameter == parameters.end()) {
      overrides.push_back(setting);
    } else if (parts.second.empty() || parts.second.find('\n') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("--set ", Quoted(setting), ": parameter ",
                                                     parts.first,
                                                     " needs a value without line breaks"));
    } else {
      parameter->second = parts.second;
    }
  }
  return absl::OkStatus();
}

absl::Status Parse(const std::string& text, const std::string& source,
                   absl::Span<const std::string> settings, Experiment& experiment) {
  Reader reader(source);
  const YAML::Node written = YAML::Load(text);
  Parameters parameters;
  if (written.IsMap()) parameters = reader.ReadParameters(written);
  RETURN_IF_ERROR(reader.errors().status());
  RETURN_IF_ERROR(ApplySettings(settings, parameters, experiment.overrides));
  const std::string substituted = Substituted(text, parameters);
  reader.Read(YAML::Load(substituted), substituted, experiment);
  return reader.errors().status();
}

}  // namespace

absl::StatusOr<Experiment> ParseExperiment(const std::string& text, const std::string& source,
                                           absl::Span<const std::string> settings) {
  Experiment experiment;
  experiment.base_source = source;
  try {
    RETURN_IF_ERROR(Parse(text, source, settings, experiment));
  } catch (const YAML::Exception& error) {
    YamlErrors errors(source);
    errors.Add(error.mark, absl::StrCat("invalid YAML: ", error.msg));
    return errors.status();
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", error.what()));
  }
  return experiment;
}

}  // namespace muster::cli
