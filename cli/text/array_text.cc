#include "cli/text/array_text.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/output/json.h"
#include "cli/output/table.h"
#include "cli/text/job_text.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

// Column of the values of a description.
constexpr size_t kValueColumn = 15;

// "4 succeeded, 1 failed, 3 running, 4 queued": the states in the order of their numbers, ends
// last.
std::string StatesText(const v1::JobArray& array) {
  std::map<int, std::string> parts;
  for (const auto& [name, count] : array.tasks()) {
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    if (count == 0 || !v1::JobState_Parse(name, &state)) continue;
    parts[state] = absl::StrCat(count, " ", StateWord(state));
  }
  return absl::StrJoin(
      parts, ", ", [](std::string* out, const auto& part) { absl::StrAppend(out, part.second); });
}

// The fields in which the tasks differ, in the order of the array's matrix.
std::vector<std::string> Fields(const v1::GetArrayResponse& response) {
  std::vector<std::string> fields;
  for (const v1::Job& task : response.tasks()) {
    for (const v1::ArrayValue& value : task.array_values()) {
      if (std::find(fields.begin(), fields.end(), value.field()) == fields.end()) {
        fields.push_back(value.field());
      }
    }
  }
  return fields;
}

// The last name of a path, or the whole path if another field has the same last name.
std::string Head(const std::string& field, const std::vector<std::string>& fields) {
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  const auto same = [&](const std::string& other) { return last(other) == last(field); };
  const bool unique = std::count_if(fields.begin(), fields.end(), same) == 1;
  return absl::AsciiStrToUpper(absl::StrReplaceAll(unique ? last(field) : field, {{"_", " "}}));
}

std::string ValueCell(const v1::Job& task, const std::string& field) {
  for (const v1::ArrayValue& value : task.array_values()) {
    if (value.field() == field) return value.value();
  }
  return "";
}

std::string LossCell(const v1::Job& task) {
  if (task.has_summary()) return absl::StrFormat("%.4f", task.summary().final_loss());
  return task.progress().loss() != 0 ? absl::StrFormat("%.4f", task.progress().loss()) : "";
}

std::string AccuracyCell(const v1::Job& task) {
  const double accuracy =
      task.has_summary() ? task.summary().test_accuracy() : task.progress().test_accuracy();
  return task.has_summary() || accuracy > 0 ? absl::StrFormat("%.4f", accuracy) : "";
}

}  // namespace

std::string ResultsTable(const v1::GetArrayResponse& response, bool wide, absl::Time now) {
  const std::vector<std::string> fields = Fields(response);
  std::vector<std::string> heads = {"INDEX"};
  for (const std::string& field : fields) heads.push_back(Head(field, fields));
  heads.insert(heads.end(), {"STATE", "LOSS", "ACCURACY", "DURATION"});
  if (wide) heads.insert(heads.end(), {"JOB", "REASON"});
  Table table(heads);
  for (const v1::Job& task : response.tasks()) {
    std::vector<std::string> row = {absl::StrCat(task.array_index())};
    for (const std::string& field : fields) row.push_back(ValueCell(task, field));
    row.insert(row.end(), {v1::JobState_Name(task.state()), LossCell(task), AccuracyCell(task),
                           DurationText(task, now)});
    if (wide) row.insert(row.end(), {task.job_id(), task.reason()});
    table.AddRow(std::move(row));
  }
  return table.Text();
}

std::string ArrayDescription(const v1::GetArrayResponse& response, bool wide, absl::Time now) {
  const v1::JobArray& array = response.array();
  FieldList fields(kValueColumn);
  fields.Add("Array", array.array_id());
  fields.Add("Name", array.name());
  fields.Add("Owner", array.owner());
  fields.Add("Class", array.priority_class());
  fields.Add("State", v1::JobState_Name(array.state()));
  fields.Add("Tasks", absl::StrCat(array.count(), ": ", StatesText(array)));
  fields.Add("At a time", array.concurrency() > 0 ? absl::StrCat(array.concurrency()) : "");
  fields.AddTime("Submitted", array.has_submit_time(), array.submit_time(), now);
  fields.AddTime("Finished", array.has_finish_time(), array.finish_time(), now);
  if (!response.tasks().empty()) fields.AddText("\n" + ResultsTable(response, wide, now));
  return fields.text();
}

nlohmann::ordered_json ArrayToJson(const v1::GetArrayResponse& response) {
  nlohmann::ordered_json json;
  json["array"] = ToJson(response.array());
  json["tasks"] = nlohmann::ordered_json::array();
  for (const v1::Job& task : response.tasks()) json["tasks"].push_back(JobToJson(task));
  return json;
}

}  // namespace muster::cli
