// The spec's language as a JSON Schema, for editors and other programs.
#ifndef MUSTER_CLI_SPEC_SPEC_SCHEMA_H_
#define MUSTER_CLI_SPEC_SPEC_SCHEMA_H_

#include "nlohmann/json_fwd.hpp"

namespace muster::cli {

// Draft 2020-12. Whatever the coordinator takes fits it; it does not tell all that the coordinator
// refuses.
nlohmann::ordered_json SpecSchema();

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_SPEC_SCHEMA_H_
