#include "coordinator/service/http/json/json_text.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace muster::service {

void AppendJsonString(absl::string_view text, std::string& json) {
  json.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json.push_back('\\');
      json.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      json.push_back(c);
    }
  }
  json.push_back('"');
}

std::string JsonNumber(double value, int digits) {
  return std::isfinite(value) ? absl::StrFormat("%.*g", digits, value) : "null";
}

std::string JsonCounts(const std::map<std::string, size_t>& counts) {
  const auto write = [](std::string* json, const auto& count) {
    absl::StrAppend(json, "\"", count.first, "\":", count.second);
  };
  return absl::StrCat("{", absl::StrJoin(counts, ",", write), "}");
}

void JsonObject::Begin(absl::string_view name) {
  absl::StrAppend(&json_, json_.size() > 1 ? ",\"" : "\"", name, "\":");
}

JsonObject& JsonObject::Add(absl::string_view name, absl::string_view value) {
  if (value.empty()) return *this;
  Begin(name);
  AppendJsonString(value, json_);
  return *this;
}

JsonObject& JsonObject::Add(absl::string_view name, uint64_t value) {
  if (value == 0) return *this;
  return AddRaw(name, absl::StrCat(value));
}

JsonObject& JsonObject::Add(absl::string_view name, double value, int digits) {
  if (value == 0) return *this;
  return AddRaw(name, JsonNumber(value, digits));
}

JsonObject& JsonObject::Add(absl::string_view name, bool value) {
  return value ? AddRaw(name, "true") : *this;
}

JsonObject& JsonObject::AddRaw(absl::string_view name, absl::string_view json) {
  Begin(name);
  absl::StrAppend(&json_, json);
  return *this;
}

std::string JsonObject::Take() {
  json_.push_back('}');
  return std::move(json_);
}

}  // namespace muster::service
