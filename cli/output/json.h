// Converts messages to JSON and YAML, with the proto's field names, RFC 3339 UTC times, and
// durations in seconds ("1.5s").
#ifndef MUSTER_CLI_OUTPUT_JSON_H_
#define MUSTER_CLI_OUTPUT_JSON_H_

#include <string>

#include "google/protobuf/message.h"
#include "nlohmann/json_fwd.hpp"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Scalars are always present, whatever their value, except a spec's numbers whose zero means "not
// given"; messages, lists and maps only if they are not empty. Random ids (fixed64) are strings of
// 16 hexadecimal digits, integers beyond 2^53 are strings, and numbers that JSON cannot express are
// "NaN", "Infinity", "-Infinity".
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

// A word of a spec's field as YAML reads it: a boolean for true and false, otherwise a string.
nlohmann::ordered_json WordJson(const std::string& word);

// A job, by default without its summary's losses, of which there may be 100,000.
nlohmann::ordered_json JobToJson(const v1::Job& job, bool with_losses = false);

// Indented, with a newline at the end.
std::string JsonText(const nlohmann::ordered_json& value);
std::string YamlText(const nlohmann::ordered_json& value);

}  // namespace muster::cli

#endif  // MUSTER_CLI_OUTPUT_JSON_H_
