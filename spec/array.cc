#include "spec/array.h"

#include <algorithm>
#include <memory>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/text/nearest.h"
#include "spec/rules/rules.h"
#include "spec/spec.h"
#include "spec/yaml/overrides.h"

namespace muster::spec {
namespace {

using Values = std::vector<v1::ArrayValue>;

// The part of the spec that has the values of the task at `index`.
std::string PathOf(const v1::ArraySpec& array, uint64_t index) {
  return array.tasks().empty() ? "array.matrix" : absl::StrCat("array.tasks[", index, "]");
}

// The values of the task at `index`. The last axis of a matrix varies fastest.
Values ValuesOf(const v1::ArraySpec& array, uint64_t index) {
  if (!array.tasks().empty()) {
    const auto& values = array.tasks(static_cast<int>(index)).values();
    return {values.begin(), values.end()};
  }
  Values values(array.matrix_size());
  for (int i = array.matrix_size() - 1; i >= 0; --i) {
    const v1::ArrayAxis& axis = array.matrix(i);
    values[i].set_field(axis.field());
    values[i].set_value(axis.values(index % axis.values_size()));
    index /= axis.values_size();
  }
  return values;
}

// "train.epochs=1, train.seed=2"
std::string ValuesText(const Values& values) {
  return absl::StrJoin(values, ", ", [](std::string* text, const v1::ArrayValue& value) {
    absl::StrAppend(text, value.field(), "=", value.value());
  });
}

// Checks that the tasks of an array may differ in the field. False, with a problem added,
// otherwise.
bool CheckField(absl::string_view field, const std::string& path, Problems& problems) {
  constexpr absl::string_view kFixed[] = {"name", "array", "after", "files"};
  if (field.empty()) {
    problems.Add(path, "is not a field; use the path of a field");
    return false;
  }
  if (!absl::c_linear_search(kFixed, field.substr(0, field.find('.')))) return true;
  problems.Add(path, "is the same for all tasks of an array; remove it from the array");
  return false;
}

// As CheckField, for a value of the field. `scratch` is a spec whose fields may be overwritten.
bool CheckValue(const std::string& field, const std::string& value, const std::string& path,
                v1::JobSpec& scratch, Problems& problems) {
  const absl::Status set = SetPath(field, value, path, scratch);
  if (set.ok()) return true;
  absl::string_view text = set.message();
  absl::ConsumePrefix(&text, absl::StrCat(path, ": "));
  problems.Add(path, text);
  return false;
}

// Checks the field of an axis and each of its values.
void CheckAxis(const v1::ArrayAxis& axis, v1::JobSpec& scratch, Problems& problems) {
  const std::string path = absl::StrCat("array.matrix ", Quoted(axis.field()));
  if (!CheckField(axis.field(), path, problems)) return;
  if (axis.values().empty()) return problems.Add(path, "has no values");
  for (const std::string& value : axis.values()) {
    // One error is enough for a field that does not exist.
    if (!CheckValue(axis.field(), value, path, scratch, problems)) return;
  }
}

// Checks the values of each task, up to the first task that has problems.
void CheckTasks(const v1::ArraySpec& array, v1::JobSpec& scratch, Problems& problems) {
  for (int i = 0; i < array.tasks_size(); ++i) {
    bool good = true;
    std::set<absl::string_view> seen;
    for (const v1::ArrayValue& value : array.tasks(i).values()) {
      const std::string path = absl::StrCat(PathOf(array, i), " ", Quoted(value.field()));
      if (!seen.insert(value.field()).second) {
        problems.Add(path, "is given twice");
        good = false;
      } else if (!CheckField(value.field(), path, problems) ||
                 !CheckValue(value.field(), value.value(), path, scratch, problems)) {
        good = false;
      }
    }
    if (!good) return;
  }
}

// Returns the spec of a task: `base` with its values and defaults. `path`: the part of the array
// that has the values.
absl::StatusOr<SharedSpec> ExpandTask(const v1::JobSpec& base, const std::string& path,
                                      const Values& values) {
  v1::JobSpec spec = base;
  for (const v1::ArrayValue& value : values) {
    RETURN_IF_ERROR(SetPath(value.field(), value.value(),
                            absl::StrCat(path, " ", Quoted(value.field())), spec));
  }
  ApplyDefaults(spec);
  const absl::Status valid = ValidateJob(spec);
  if (valid.ok()) return std::make_shared<const v1::JobSpec>(std::move(spec));
  return absl::InvalidArgumentError(absl::StrCat(path, ": the task with ",
                                                 values.empty() ? "no values" : ValuesText(values),
                                                 " is not valid:\n", valid.message()));
}

constexpr absl::string_view kIndex = "{array_index}";

// The position of `kIndex` in an argument from `begin` on, where a worker replaces it; npos if
// there is none. Arguments with white space are programs, and ${…} is a variable of a shell.
size_t FindIndex(absl::string_view argument, size_t begin) {
  if (absl::c_any_of(argument, absl::ascii_isspace)) return std::string::npos;
  size_t at = argument.find(kIndex, begin);
  while (at != std::string::npos && at > 0 && argument[at - 1] == '$') {
    at = argument.find(kIndex, at + 1);
  }
  return at;
}

// The memory of the specs of all `count` tasks with their values, or more.
uint64_t BytesOf(const v1::JobSpec& spec, uint64_t count) {
  if (spec.array().count() > 0) return spec.SpaceUsedLong();
  v1::JobSpec base = spec;
  std::unique_ptr<v1::ArraySpec>(base.release_array()).reset();  // cleared, it keeps memory
  uint64_t of_one = base.SpaceUsedLong();
  for (const v1::ArrayAxis& axis : spec.array().matrix()) {
    size_t longest = 0;
    for (const std::string& value : axis.values()) longest = std::max(longest, value.size());
    of_one += axis.field().size() + 2 * longest;
  }
  return count * of_one + 2 * spec.array().SpaceUsedLong();
}

}  // namespace

void ResolveTask(const v1::Job& task, v1::JobSpec& spec) {
  const std::string index = absl::StrCat(task.array_index());
  auto& env = *spec.mutable_env();
  env["MUSTER_ARRAY_ID"] = task.array_id();
  env["MUSTER_ARRAY_INDEX"] = index;
  env["MUSTER_ARRAY_COUNT"] = absl::StrCat(task.array_count());
  for (std::string& argument : *spec.mutable_command()) {
    size_t at = 0;
    while ((at = FindIndex(argument, at)) != std::string::npos) {
      argument.replace(at, kIndex.size(), index);
    }
  }
}

absl::Status CheckPlaceholders(const v1::JobSpec& spec) {
  if (spec.has_array()) return absl::OkStatus();
  for (const std::string& argument : spec.command()) {
    if (FindIndex(argument, 0) == std::string::npos) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "command: ", Quoted(argument), " has a value only in tasks of arrays; set array, as in ",
        "array: {count: 10}, or write a number in place of ", kIndex));
  }
  return absl::OkStatus();
}

uint64_t CountTasks(const v1::ArraySpec& array) {
  if (!array.tasks().empty()) return array.tasks_size();
  if (array.matrix().empty()) return array.count();
  uint64_t count = 1;
  for (const v1::ArrayAxis& axis : array.matrix()) {
    count *= axis.values_size();
    // A product of more axes could overflow.
    if (count == 0 || count > limits::kTasksPerArray) return count;
  }
  return count;
}

void CheckArray(const v1::JobSpec& spec, Problems& problems) {
  const v1::ArraySpec& array = spec.array();
  const int kinds = (array.count() > 0) + !array.matrix().empty() + !array.tasks().empty();
  if (kinds == 0) {
    problems.AddMissing("array", "is empty; set count, matrix or tasks");
  } else if (kinds > 1) {
    problems.Add("array", "has more than one of count, matrix and tasks; keep one of them");
  }
  const uint64_t count = CountTasks(array);
  if (!array.matrix().empty() && count > limits::kTasksPerArray) {
    return problems.Add("array.matrix", "has more than ", limits::kTasksPerArray,
                        " combinations of values; use fewer values");
  }
  const uint64_t bytes = BytesOf(spec, count);
  if (bytes > limits::kArrayBytes) {
    problems.Add("array", "the specs of its ", count, " tasks take ", bytes,
                 " bytes of memory; the limit is ", limits::kArrayBytes);
  }
  v1::JobSpec scratch = spec;
  for (const v1::ArrayAxis& axis : array.matrix()) CheckAxis(axis, scratch, problems);
  CheckTasks(array, scratch, problems);
}

void SetFirstValues(v1::JobSpec& spec) {
  const v1::ArraySpec array = spec.array();
  const bool none =
      absl::c_any_of(array.matrix(), [](const auto& a) { return a.values().empty(); });
  if (none || CountTasks(array) == 0) return;
  for (const v1::ArrayValue& value : ValuesOf(array, 0)) {
    v1::JobSpec changed = spec;
    // Values that cannot be set are reported by CheckArray.
    if (!SetPath(value.field(), value.value(), "", changed).ok()) continue;
    *changed.mutable_array() = array;
    spec = std::move(changed);
  }
}

absl::StatusOr<std::vector<ArrayTask>> ExpandArray(const v1::JobSpec& spec) {
  v1::JobSpec first = spec;
  SetFirstValues(first);
  ApplyDefaults(first);
  RETURN_IF_ERROR(ValidateJob(first));
  v1::JobSpec named = spec;
  ApplyDefaults(named);
  v1::JobSpec base = spec;
  base.clear_array();
  base.set_name(named.name());
  std::vector<ArrayTask> tasks(CountTasks(spec.array()));
  if (spec.array().count() > 0) {
    ApplyDefaults(base);
    const auto shared = std::make_shared<const v1::JobSpec>(std::move(base));
    for (ArrayTask& task : tasks) task.spec = shared;
    return tasks;
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].values = ValuesOf(spec.array(), i);
    ASSIGN_OR_RETURN(tasks[i].spec, ExpandTask(base, PathOf(spec.array(), i), tasks[i].values));
  }
  return tasks;
}

}  // namespace muster::spec
