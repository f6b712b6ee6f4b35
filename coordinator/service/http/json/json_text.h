// Writes JSON objects as text. For rows, of which there are thousands; nlohmann::json is several
// times slower.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_JSON_JSON_TEXT_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_JSON_JSON_TEXT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace muster::service {

// Appends `text`, which must be UTF-8, with quotation marks.
void AppendJsonString(absl::string_view text, std::string& json);

// A number with at most `digits` significant digits; null if it is not finite.
std::string JsonNumber(double value, int digits = 6);

// {"name": number, …}
std::string JsonCounts(const std::map<std::string, size_t>& counts);

// Writes the fields of one object in the order of the calls. Fields with an empty string, 0 or
// false are left out, so that a row is short.
class JsonObject {
 public:
  JsonObject& Add(absl::string_view name, absl::string_view value);
  JsonObject& Add(absl::string_view name, const std::string& value) {
    return Add(name, absl::string_view(value));
  }
  JsonObject& Add(absl::string_view name, const char* value) {
    return Add(name, absl::string_view(value));
  }
  JsonObject& Add(absl::string_view name, uint64_t value);
  JsonObject& Add(absl::string_view name, uint32_t value) { return Add(name, uint64_t{value}); }
  JsonObject& Add(absl::string_view name, double value, int digits = 6);
  JsonObject& Add(absl::string_view name, bool value);
  // `json` is written as it is, also if it is empty text of a list.
  JsonObject& AddRaw(absl::string_view name, absl::string_view json);
  // The complete object. The writer must not be used afterwards.
  std::string Take();

 private:
  void Begin(absl::string_view name);
  std::string json_ = "{";
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_JSON_JSON_TEXT_H_
