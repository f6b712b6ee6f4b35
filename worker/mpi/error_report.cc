#include "worker/mpi/error_report.h"

#include "nlohmann/json.hpp"
#include "worker/shim/fields.h"

namespace muster::mpi {

void WriteErrorFile(const std::string& path, absl::string_view message) {
  if (path.empty()) return;
  nlohmann::json file;
  // As PyTorch's @record decorator writes it.
  file["message"]["message"] = std::string(message);
  const std::string text = file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  shim::WriteFileAtomically(path, text, /*sync=*/false);
}

}  // namespace muster::mpi
