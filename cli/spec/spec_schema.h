// The JSON schema of the spec, for editors and other programs.
#ifndef MUSTER_CLI_SPEC_SPEC_SCHEMA_H_
#define MUSTER_CLI_SPEC_SPEC_SCHEMA_H_

#include "nlohmann/json_fwd.hpp"

namespace muster::cli {

// Draft 2020-12. Accepts every spec that the coordinator accepts, and some that it rejects: rules
// between fields are not part of it.
nlohmann::ordered_json SpecSchema();

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_SPEC_SCHEMA_H_
