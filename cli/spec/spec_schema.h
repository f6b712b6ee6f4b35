// The JSON Schema of job specs, for editors and other programs.
#ifndef MUSTER_CLI_SPEC_SPEC_SCHEMA_H_
#define MUSTER_CLI_SPEC_SPEC_SCHEMA_H_

#include "nlohmann/json_fwd.hpp"

namespace muster::cli {

// The schema, in draft 2020-12. It accepts every spec that the coordinator accepts, and some that
// it rejects: rules between fields are not expressed.
nlohmann::ordered_json SpecSchema();

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_SPEC_SCHEMA_H_
