#include "spec/schema.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/text/nearest.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/fields.h"
#include "spec/units.h"

namespace muster::spec {
namespace {

bool IsNumber(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
    case FieldDescriptor::CPPTYPE_BOOL:
    case FieldDescriptor::CPPTYPE_ENUM:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return false;
    default:
      return true;
  }
}

// A bound in the spec's syntax.
std::string BoundText(const FieldDescriptor& field, double bound) {
  switch (FormOf(field)) {
    case FieldForm::kSize:
      return SizeText(static_cast<uint64_t>(bound));
    case FieldForm::kDuration:
      return DurationText(absl::Seconds(bound));
    default:
      break;
  }
  const bool whole = bound == std::floor(bound) && std::abs(bound) < 0x1p53;
  return whole ? absl::StrCat(static_cast<int64_t>(bound)) : absl::StrCat(bound);
}

bool HasSynonym(const FieldDescriptor& field, absl::string_view name) {
  const std::vector<std::string>& synonyms = FieldOf(field).synonyms;
  return std::find(synonyms.begin(), synonyms.end(), name) != synonyms.end();
}

// Appends the paths of all fields in `message` and its sections whose name, or a synonym of it, is
// `name`.
void FindField(const Descriptor& message, absl::string_view where, absl::string_view name,
               std::vector<std::string>& paths) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string path = JoinPath(where, field.name());
    if (field.name() == name || HasSynonym(field, name)) paths.push_back(path);
    // Skips lists, which contain layers.
    if (field.message_type() != nullptr && !field.is_repeated() &&
        FormOf(field) == FieldForm::kPlain) {
      FindField(*field.message_type(), path, name, paths);
    }
  }
}

}  // namespace

FieldForm FormOf(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) {
    if (field.is_map()) {
      const bool environment =
          field.containing_type() == v1::JobSpec::descriptor() && field.name() == "env";
      return environment ? FieldForm::kEnvironment : FieldForm::kPlain;
    }
    const std::string& type = field.message_type()->full_name();
    if (type == "google.protobuf.Duration") return FieldForm::kDuration;
    if (type == "muster.v1.NodeCount") return FieldForm::kNodeCount;
    if (type == "muster.v1.LostCoordinatorPolicy") return FieldForm::kLostCoordinator;
    if (type == "muster.v1.LayerSpec") return FieldForm::kLayer;
    if (type == "muster.v1.FileSpec") return FieldForm::kFile;
    if (type == "muster.v1.ArrayAxis") return FieldForm::kMatrix;
    if (type == "muster.v1.ArrayTaskValues") return FieldForm::kTaskValues;
    return FieldForm::kPlain;
  }
  return FieldOf(field).unit == "bytes" ? FieldForm::kSize : FieldForm::kPlain;
}

bool ZeroMeansUnset(const FieldDescriptor& field) {
  return IsNumber(field) && !field.is_repeated() && !field.has_presence() &&
         !FieldOf(field).range.Contains(0);
}

bool IsSet(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

bool Applies(const Message& message, const FieldDescriptor& field) {
  const Condition& condition = FieldOf(field).only_with;
  if (condition.words.empty()) return true;
  const FieldDescriptor* sibling =
      message.GetDescriptor()->FindFieldByName(std::string(condition.field));
  const std::string value = message.GetReflection()->GetString(message, sibling);
  return std::find(condition.words.begin(), condition.words.end(), value) != condition.words.end();
}

std::string RangeText(const FieldDescriptor& field) {
  const Range& range = FieldOf(field).range;
  if (!range.bounded_below()) return "";
  const std::string low = BoundText(field, range.low);
  if (!range.bounded_above()) {
    if (range.low_excluded) return absl::StrCat("above ", low);
    return range.low == 0 ? "0 or more" : absl::StrCat("at least ", low);
  }
  const std::string high = BoundText(field, range.high);
  if (range.low_excluded) {
    return absl::StrCat("above ", low, " and ", range.high_excluded ? "below " : "at most ", high);
  }
  const absl::string_view word = FieldOf(field).zero_word;
  return absl::StrCat("from ", low, range.high_excluded ? " to below " : " to ", high,
                      word.empty() ? "" : ", or ", word);
}

std::string EnumText(const FieldDescriptor& field, int value) {
  const std::vector<std::string>& words = FieldOf(field).words;
  return value >= 0 && value < static_cast<int64_t>(words.size()) ? words[value]
                                                                  : absl::StrCat(value);
}

std::string AnyOf(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  }
  return text;
}

std::vector<std::string> FieldNames(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return names;
}

std::string MeantField(const Descriptor& message, absl::string_view where, absl::string_view name) {
  for (int i = 0; i < message.field_count(); ++i) {
    if (HasSynonym(*message.field(i), name)) return JoinPath(where, message.field(i)->name());
  }
  const std::string nearest = Nearest(name, FieldNames(message));
  std::vector<std::string> elsewhere;
  FindField(*v1::JobSpec::descriptor(), "", name, elsewhere);
  if (elsewhere.size() == 1 && (nearest.empty() || EditDistance(name, nearest) > 1)) {
    return elsewhere[0];
  }
  return nearest.empty() ? "" : JoinPath(where, nearest);
}

std::string UnknownField(const Descriptor& message, absl::string_view where,
                         absl::string_view name) {
  const std::string text = absl::StrCat("unknown field ", Quoted(name), " in ",
                                        where.empty() ? absl::string_view("the spec") : where);
  const std::string path = MeantField(message, where, name);
  if (path.empty()) return text;
  absl::string_view meant = path;
  if (!where.empty()) absl::ConsumePrefix(&meant, absl::StrCat(where, "."));
  // A field of an inner section is shown with its whole path.
  if (absl::StrContains(meant, '.')) meant = path;
  return absl::StrCat(text, "; did you mean '", meant, "'?");
}

std::string JoinPath(absl::string_view where, absl::string_view name) {
  return where.empty() ? std::string(name) : absl::StrCat(where, ".", name);
}

}  // namespace muster::spec
