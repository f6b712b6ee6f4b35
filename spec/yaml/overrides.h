// Sets single fields of a spec by path, as `--set FIELD=VALUE` and the tasks of an array do.
#ifndef MUSTER_SPEC_YAML_OVERRIDES_H_
#define MUSTER_SPEC_YAML_OVERRIDES_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/yaml/yaml_reader.h"
#include "yaml-cpp/yaml.h"

namespace muster::spec {

// The single document of `text`; null, with an error added, if there are several. May throw
// YAML::Exception.
YAML::Node LoadDocument(const std::string& text, YamlReader& reader);

// Reads `value` into the field at `path`; an empty value clears the field. May throw
// YAML::Exception.
void ReadOverride(absl::string_view path, absl::string_view value, YamlReader& reader,
                  v1::JobSpec& spec);

// Calls `read` and adds the exceptions of yaml-cpp to the reader's errors. False after an
// exception.
bool CatchYamlErrors(YamlReader& reader, absl::FunctionRef<void()> read);

// As ReadOverride; INVALID_ARGUMENT, with `source` before each error, if the field does not accept
// the value.
absl::Status SetPath(absl::string_view path, absl::string_view value, absl::string_view source,
                     v1::JobSpec& spec);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_YAML_OVERRIDES_H_
