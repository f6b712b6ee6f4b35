#include "spec/array.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/limits.h"
#include "common/nearest.h"
#include "common/status.h"
#include "spec/overrides.h"
#include "spec/rules.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

std::string AxisPath(const v1::ArrayAxis& axis) {
  return absl::StrCat("array.matrix ", Quoted(axis.field()));
}

// The value of each axis for the task at `index`: the last axis varies fastest.
std::vector<std::pair<std::string, std::string>> ValuesOf(const v1::ArraySpec& array,
                                                          uint64_t index) {
  std::vector<std::pair<std::string, std::string>> values(array.matrix_size());
  for (int i = array.matrix_size() - 1; i >= 0; --i) {
    const v1::ArrayAxis& axis = array.matrix(i);
    values[i] = {axis.field(), axis.values(index % axis.values_size())};
    index /= axis.values_size();
  }
  return values;
}

// "train.epochs=1, train.seed=2"
std::string ValuesText(const std::vector<std::pair<std::string, std::string>>& values) {
  return absl::StrJoin(values, ", ", absl::PairFormatter("="));
}

// Checks the field of an axis and each of its values. `scratch` is a spec whose fields may be
// overwritten.
void CheckAxis(const v1::ArrayAxis& axis, v1::JobSpec& scratch, Problems& problems) {
  constexpr absl::string_view kFixed[] = {"name", "array", "after", "files"};
  const absl::string_view field = axis.field();
  const absl::string_view top = field.substr(0, field.find('.'));
  const std::string path = AxisPath(axis);
  if (axis.field().empty()) return problems.Add(path, "is not a field; use the path of a field");
  if (absl::c_linear_search(kFixed, top)) {
    return problems.Add(path, "is the same for all tasks of an array; remove it from the matrix");
  }
  if (axis.values().empty()) return problems.Add(path, "has no values");
  for (const std::string& value : axis.values()) {
    const absl::Status set = SetPath(axis.field(), value, path, scratch);
    if (set.ok()) continue;
    // One error is enough for a field that does not exist.
    absl::string_view text = set.message();
    absl::ConsumePrefix(&text, absl::StrCat(path, ": "));
    return problems.Add(path, text);
  }
}

absl::Status ExpandTask(const v1::JobSpec& base, ArrayTask& task) {
  task.spec = base;
  for (const auto& [field, value] : task.values) {
    RETURN_IF_ERROR(SetPath(field, value, absl::StrCat("array.matrix ", Quoted(field)), task.spec));
  }
  ApplyDefaults(task.spec);
  if (task.values.empty()) return absl::OkStatus();
  const absl::Status valid = ValidateJob(task.spec);
  if (valid.ok()) return valid;
  return absl::InvalidArgumentError(absl::StrCat("array.matrix: the task with ",
                                                 ValuesText(task.values), " is not valid:\n",
                                                 valid.message()));
}

}  // namespace

uint64_t CountTasks(const v1::ArraySpec& array) {
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
  if (array.count() > 0 && !array.matrix().empty()) {
    problems.Add("array", "has both count and matrix; remove one of them");
  } else if (array.count() == 0 && array.matrix().empty()) {
    problems.AddMissing("array", "is empty; set count or matrix");
  }
  const uint64_t count = CountTasks(array);
  if (!array.matrix().empty() && count > limits::kTasksPerArray) {
    return problems.Add("array.matrix", absl::StrCat("has more than ", limits::kTasksPerArray,
                                                     " combinations of values; use fewer values"));
  }
  const uint64_t bytes = count * spec.ByteSizeLong();
  if (bytes > limits::kArrayBytes) {
    problems.Add("array",
                 absl::StrCat(count, " tasks with specs of ", spec.ByteSizeLong(), " bytes have ",
                              bytes, " bytes; the limit is ", limits::kArrayBytes));
  }
  v1::JobSpec scratch = spec;
  for (const v1::ArrayAxis& axis : array.matrix()) CheckAxis(axis, scratch, problems);
}

void SetFirstValues(v1::JobSpec& spec) {
  const v1::ArraySpec array = spec.array();
  for (const v1::ArrayAxis& axis : array.matrix()) {
    if (axis.values().empty()) continue;
    v1::JobSpec changed = spec;
    // Values that cannot be set are reported by CheckArray.
    if (!SetPath(axis.field(), axis.values(0), "", changed).ok()) continue;
    *changed.mutable_array() = array;
    spec = std::move(changed);
  }
}

absl::StatusOr<std::vector<ArrayTask>> ExpandArray(const v1::JobSpec& spec) {
  v1::JobSpec base = spec;
  ApplyDefaults(base);
  RETURN_IF_ERROR(ValidateJob(base));
  const std::string name = base.name();
  base = spec;
  base.clear_array();
  base.set_name(name);
  std::vector<ArrayTask> tasks(CountTasks(spec.array()));
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].values = ValuesOf(spec.array(), i);
    RETURN_IF_ERROR(ExpandTask(base, tasks[i]));
  }
  return tasks;
}

}  // namespace muster::spec
