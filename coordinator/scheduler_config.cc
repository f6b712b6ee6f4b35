#include "coordinator/scheduler_config.h"

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "common/text/nearest.h"
#include "yaml-cpp/yaml.h"

namespace muster {
namespace {

using core::OwnerQuota;
using core::SchedulerOptions;

constexpr char kDefault[] = "default";
constexpr uint32_t kMostReservations = 64;

class Reader {
 public:
  explicit Reader(absl::string_view source) : source_(source) {}

  absl::StatusOr<SchedulerOptions> Read(const std::string& text) {
    try {
      const YAML::Node root = YAML::Load(text);
      if (root.IsNull()) return SchedulerOptions();
      SchedulerOptions options;
      RETURN_IF_ERROR(ReadRoot(root, options));
      return options;
    } catch (const YAML::Exception& error) {
      return Error(error.mark, error.msg);
    }
  }

 private:
  using ReadValue = std::function<absl::Status(const YAML::Node&, const std::string&)>;
  using Fields = std::map<std::string, ReadValue>;

  absl::Status Error(const YAML::Mark& mark, absl::string_view problem) const {
    if (mark.is_null()) return absl::InvalidArgumentError(absl::StrCat(source_, ": ", problem));
    return absl::InvalidArgumentError(absl::StrCat(source_, ":", mark.line + 1, ": ", problem));
  }

  absl::Status ReadRoot(const YAML::Node& root, SchedulerOptions& options) const {
    return ReadFields(
        root, "",
        {{"ageing", Duration(options.ageing)},
         {"overdue_percent", Count(options.overdue_percent, 0, 100)},
         {"half_life", Duration(options.half_life)},
         {"lookahead", Duration(options.lookahead)},
         {"shares",
          [&](const auto& node, const auto& where) {
            return ReadOwners<double>(node, where, options.default_share, options.shares,
                                      [this](const auto& value, const auto& at, double& share) {
                                        return ReadShare(value, at, share);
                                      });
          }},
         {"limits",
          [&](const auto& node, const auto& where) {
            return ReadOwners<OwnerQuota>(
                node, where, options.default_limits, options.limits,
                [this](const auto& value, const auto& at, OwnerQuota& limits) {
                  return ReadFields(value, at,
                                    {{"running_slots", Count(limits.running_slots, 0, kMost)},
                                     {"queued_jobs", Count(limits.queued_jobs, 0, kMost)}});
                });
          }},
         {"preemption",
          [this, &options](const auto& node, const auto& where) {
            return YAML::convert<bool>::decode(node, options.preemption)
                       ? absl::OkStatus()
                       : Error(node.Mark(),
                               absl::StrCat(where, ": '", Text(node), "' is not true or false"));
          }},
         {"reservations", Count(options.reservations, 1, kMostReservations)},
         {"backfill_depth", Count(options.backfill_depth, 1, kMost)},
         {"highest_class", [&](const auto& node, const auto& where) {
            return ReadFields(node, where,
                              {{"view", ClassName(options.highest_class["view"])},
                               {"submit", ClassName(options.highest_class["submit"])},
                               {"admin", ClassName(options.highest_class["admin"])}});
          }}});
  }

  // Reads a map with these fields only.
  absl::Status ReadFields(const YAML::Node& node, const std::string& where,
                          const Fields& fields) const {
    if (!node.IsMap()) {
      return Error(node.Mark(), absl::StrCat(where.empty() ? "the file" : where,
                                             ": expected fields with values, such as '",
                                             fields.begin()->first, ": …'"));
    }
    for (const auto& entry : node) {
      const std::string name = Text(entry.first);
      const auto field = fields.find(name);
      if (field == fields.end()) {
        std::vector<std::string> names;
        for (const auto& [known, read] : fields) names.push_back(known);
        return Error(entry.first.Mark(),
                     absl::StrCat("unknown field ", Path(where, name), DidYouMean(name, names)));
      }
      RETURN_IF_ERROR(field->second(entry.second, Path(where, name)));
    }
    return absl::OkStatus();
  }

  // Reads a map from names of owners to values. The value of `default` is that of all others, and
  // the fields that an owner's value leaves out.
  template <typename Value, typename ReadOne>
  absl::Status ReadOwners(const YAML::Node& node, const std::string& where, Value& of_others,
                          std::map<std::string, Value>& of_owners, ReadOne read) const {
    if (!node.IsMap()) {
      return Error(node.Mark(), absl::StrCat(where, ": expected names of owners, or '", kDefault,
                                             "', with values"));
    }
    for (const auto& entry : node) {
      if (Text(entry.first) != kDefault) continue;
      RETURN_IF_ERROR(read(entry.second, Path(where, kDefault), of_others));
    }
    for (const auto& entry : node) {
      const std::string owner = Text(entry.first);
      if (owner == kDefault) continue;
      Value value = of_others;
      RETURN_IF_ERROR(read(entry.second, Path(where, owner), value));
      of_owners[owner] = value;
    }
    return absl::OkStatus();
  }

  ReadValue Duration(absl::Duration& value) const {
    return [this, &value](const YAML::Node& node, const std::string& where) {
      absl::string_view text = node.IsScalar() ? absl::string_view(node.Scalar()) : "";
      absl::Duration read;
      int days = 0;
      bool good = absl::ParseDuration(text, &read);
      if (!good && absl::ConsumeSuffix(&text, "d")) {
        good = absl::SimpleAtoi(text, &days);
        read = days * absl::Hours(24);
      }
      if (!good || read <= absl::ZeroDuration() || read > absl::Hours(24 * 3650)) {
        return Error(node.Mark(),
                     absl::StrCat(where, ": '", Text(node),
                                  "' is not a positive duration such as 90m, 24h or 7d"));
      }
      value = read;
      return absl::OkStatus();
    };
  }

  ReadValue Count(uint32_t& value, uint32_t least, uint32_t most) const {
    return [this, &value, least, most](const YAML::Node& node, const std::string& where) {
      uint32_t read = 0;
      if (!node.IsScalar() || !absl::SimpleAtoi(node.Scalar(), &read) || read < least ||
          read > most) {
        return Error(node.Mark(),
                     absl::StrCat(where, ": '", Text(node), "' is not a whole number from ", least,
                                  " to ", most));
      }
      value = read;
      return absl::OkStatus();
    };
  }

  ReadValue ClassName(std::string& value) const {
    return [this, &value](const YAML::Node& node, const std::string& where) {
      const std::string name = Text(node);
      if (name != "low" && name != "normal" && name != "high" && name != "critical") {
        return Error(node.Mark(),
                     absl::StrCat(where, ": '", name, "' is not low, normal, high or critical"));
      }
      value = name;
      return absl::OkStatus();
    };
  }

  absl::Status ReadShare(const YAML::Node& node, const std::string& where, double& share) const {
    double read = 0;
    if (!node.IsScalar() || !absl::SimpleAtod(node.Scalar(), &read) || !std::isfinite(read) ||
        read < 1e-3 || read > 1e6) {
      return Error(node.Mark(), absl::StrCat(where, ": '", Text(node),
                                             "' is not a number from 0.001 to 1000000"));
    }
    share = read;
    return absl::OkStatus();
  }

  static std::string Path(const std::string& where, const std::string& name) {
    return where.empty() ? name : absl::StrCat(where, ".", name);
  }
  static std::string Text(const YAML::Node& node) {
    return node.IsScalar() ? node.Scalar() : node.IsMap() ? "{…}" : node.IsSequence() ? "[…]" : "";
  }

  static constexpr uint32_t kMost = 1'000'000;
  const std::string source_;
};

}  // namespace

absl::StatusOr<SchedulerOptions> ParseSchedulerConfig(const std::string& text,
                                                      absl::string_view source) {
  return Reader(source).Read(text);
}

absl::StatusOr<SchedulerOptions> ReadSchedulerConfig(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat("cannot read --scheduler-config=", path));
  }
  return ParseSchedulerConfig(text.str(), path);
}

}  // namespace muster
