#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/text/nearest.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/array.h"
#include "spec/fields.h"
#include "spec/rules/problems.h"
#include "spec/rules/rules.h"
#include "spec/schema.h"
#include "spec/spec.h"
#include "spec/yaml/to_yaml.h"

namespace muster::spec {
namespace {

bool Contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

double NumberOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? reflection.GetRepeatedDouble(message, &field, index)
                  : reflection.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return list ? reflection.GetRepeatedFloat(message, &field, index)
                  : reflection.GetFloat(message, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return list ? reflection.GetRepeatedUInt32(message, &field, index)
                  : reflection.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(reflection.GetUInt64(message, &field));
    default:
      return 0;
  }
}

// Whether the field is set to a value other than zero or false.
bool IsSetToNonzero(const Message& message, const FieldDescriptor& field) {
  if (!IsSet(message, field)) return false;
  if (field.is_repeated()) return true;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
    case FieldDescriptor::CPPTYPE_STRING:
      return true;
    case FieldDescriptor::CPPTYPE_BOOL:
      return message.GetReflection()->GetBool(message, &field);
    default:
      return NumberOf(message, field, 0) != 0;
  }
}

void CheckNotGiven(const Message& message, const FieldDescriptor& field, const std::string& where,
                   Problems& problems) {
  const Condition& condition = FieldOf(field).only_with;
  const FieldDescriptor& sibling =
      *message.GetDescriptor()->FindFieldByName(std::string(condition.field));
  const std::string value = message.GetReflection()->GetString(message, &sibling);
  // An unknown value of the sibling is reported separately.
  if (!value.empty() && !Contains(FieldOf(sibling).words, value)) return;
  if (!IsSetToNonzero(message, field)) return;
  problems.Add(JoinPath(where, field.name()), "is given, but ", JoinPath(where, sibling.name()),
               " is ", value.empty() ? "not set" : value, "; it applies only with ",
               AnyOf(condition.words));
}

void AddOutOfRange(const FieldDescriptor& field, absl::string_view path, absl::string_view value,
                   Problems& problems) {
  problems.Add(path, "must be ", RangeText(field), ", not ", value);
}

void CheckWord(const FieldDescriptor& field, absl::string_view path, const std::string& word,
               Problems& problems) {
  const Field& entry = FieldOf(field);
  if (Contains(entry.words, word) || Contains(entry.testing_words, word)) return;
  const auto rejected = entry.rejected_words.find(word);
  if (rejected != entry.rejected_words.end()) {
    return problems.Add(path, rejected->second, "; one of: ", absl::StrJoin(entry.words, ", "));
  }
  const auto synonym = entry.word_synonyms.find(word);
  const bool known = synonym != entry.word_synonyms.end() && Contains(entry.words, synonym->second);
  const std::string meant = known ? synonym->second : Nearest(word, entry.words);
  problems.Add(
      path, "unknown ", Quoted(word),
      meant.empty() ? "; one of: " : absl::StrCat("; did you mean '", meant, "'? One of: "),
      absl::StrJoin(entry.words, ", "));
}

// Checks a value that is set; for a list, the element at `index`.
void CheckValue(const Message& message, const FieldDescriptor& field, int index,
                const std::string& path, Problems& problems) {
  const Field& entry = FieldOf(field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    // A newer program may know more values.
    return CheckWord(field, path, ScalarText(message, field, index), problems);
  }
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
    if (!entry.range.Contains(NumberOf(message, field, index))) {
      AddOutOfRange(field, path, ScalarText(message, field, index), problems);
    }
    return;
  }
  const Reflection& reflection = *message.GetReflection();
  const std::string text = field.is_repeated()
                               ? reflection.GetRepeatedString(message, &field, index)
                               : reflection.GetString(message, &field);
  if (!entry.words.empty()) {
    CheckWord(field, path, text, problems);
  } else if (entry.absolute_path) {
    problems.RequireAbsolutePath(path, text);
  } else {
    problems.RequireText(path, text);
  }
}

void CheckList(const Message& message, const FieldDescriptor& field, const std::string& path,
               Problems& problems) {
  const Field& entry = FieldOf(field);
  const int size = message.GetReflection()->FieldSize(message, &field);
  if (size == 0 && entry.required) return AddMissing(field, path, problems);
  if (entry.max_items > 0 && size > static_cast<int64_t>(entry.max_items)) {
    return problems.Add(path, "has ", size, " entries; at most ", entry.max_items);
  }
  if (field.message_type() != nullptr) return;
  for (int i = 0; i < size; ++i) {
    CheckValue(message, field, i, absl::StrCat(path, "[", i, "]"), problems);
  }
}

void CheckDuration(const Message& message, const FieldDescriptor& field, const std::string& path,
                   Problems& problems) {
  const auto& duration = static_cast<const google::protobuf::Duration&>(
      message.GetReflection()->GetMessage(message, &field));
  if (!FieldOf(field).zero_word.empty() && duration.seconds() == 0 && duration.nanos() == 0) return;
  const bool valid =
      duration.seconds() >= 0 && duration.nanos() >= 0 && duration.nanos() < 1'000'000'000;
  const double seconds = static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
  if (!valid || !FieldOf(field).range.Contains(seconds)) {
    AddOutOfRange(field, path, ValueText(message, field), problems);
  }
}

void CheckNodeCount(const Message& message, const FieldDescriptor& field, const std::string& path,
                    Problems& problems) {
  const auto& count =
      static_cast<const v1::NodeCount&>(message.GetReflection()->GetMessage(message, &field));
  const Range& range = FieldOf(field).range;
  if (!range.Contains(count.min()) || !range.Contains(count.max())) {
    AddOutOfRange(field, path, ValueText(message, field), problems);
  }
}

void CheckMessage(const Message& message, const FieldDescriptor& field, const std::string& path,
                  Problems& problems) {
  if (!IsSet(message, field) && FieldOf(field).default_value.empty()) return;
  switch (FormOf(field)) {
    case FieldForm::kDuration:
      return CheckDuration(message, field, path, problems);
    case FieldForm::kNodeCount:
      return CheckNodeCount(message, field, path, problems);
    default:
      return CheckFields(message.GetReflection()->GetMessage(message, &field), path, problems);
  }
}

void CheckScalar(const Message& message, const FieldDescriptor& field, const std::string& path,
                 Problems& problems) {
  const Field& entry = FieldOf(field);
  const bool unset =
      !IsSet(message, field) && (field.has_presence() || ZeroMeansUnset(field) ||
                                 field.cpp_type() == FieldDescriptor::CPPTYPE_STRING);
  if (!unset) return CheckValue(message, field, 0, path, problems);
  if (field.has_presence()) return;
  if (entry.required || !entry.default_value.empty()) AddMissing(field, path, problems);
}

}  // namespace

void AddMissing(const FieldDescriptor& field, absl::string_view path, Problems& problems) {
  const Field& entry = FieldOf(field);
  if (!entry.words.empty()) {
    return problems.AddMissing(path, "is missing; one of: ", absl::StrJoin(entry.words, ", "));
  }
  std::string what = Summary(entry);
  if (!what.empty()) what[0] = absl::ascii_tolower(what[0]);
  problems.AddMissing(path, "is missing; set the ", what);
}

void CheckFields(const Message& message, const std::string& where, Problems& problems) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string path = JoinPath(where, field.name());
    if (!Applies(message, field)) {
      CheckNotGiven(message, field, where, problems);
    } else if (field.is_map() || field.is_repeated()) {
      CheckList(message, field, path, problems);
    } else if (field.message_type() != nullptr) {
      CheckMessage(message, field, path, problems);
    } else {
      CheckScalar(message, field, path, problems);
    }
  }
}

void CheckSpec(const v1::JobSpec& spec, Problems& problems) {
  CheckFields(spec, "", problems);
  CheckJobRules(spec, problems);
  if (spec.has_train()) CheckTrainRules(spec, problems);
}

absl::Status Validate(const v1::JobSpec& spec) {
  if (spec.has_array()) return ExpandArray(spec).status();
  return ValidateJob(spec);
}

absl::Status ValidateJob(const v1::JobSpec& spec) {
  if (spec.ByteSizeLong() > limits::kSpecBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the spec is ", spec.ByteSizeLong(), " bytes long; the limit is ", limits::kSpecBytes));
  }
  // Before the checks of fields, whose messages could be as large.
  const size_t memory_bytes = spec.SpaceUsedLong();
  if (memory_bytes > limits::kSpecMemoryBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the spec takes ", memory_bytes, " bytes of memory; the limit is ",
        limits::kSpecMemoryBytes, "; use fewer values in command, env and other lists"));
  }
  Problems problems;
  CheckSpec(spec, problems);
  return problems.status();
}

}  // namespace muster::spec
