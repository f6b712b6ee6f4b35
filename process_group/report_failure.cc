#include "process_group/report_failure.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "collectives/peer_status.h"
#include "nlohmann/json.hpp"

namespace muster {

void ReportFailure(const absl::Status& status) {
  const char* const path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (status.ok() || path == nullptr || *path == '\0') return;
  // The members that PyTorch's @record decorator writes, plus two of Muster's.
  nlohmann::json file;
  file["message"]["message"] = std::string(status.message());
  file["status_code"] = status.raw_code();
  if (const auto peer = collectives::PeerRankOf(status)) file["peer_rank"] = *peer;
  // Written to a temporary file and renamed, so that the worker never reads a partial file.
  const std::string unfinished = absl::StrCat(path, ".", getpid());
  {
    std::ofstream out(unfinished);
    out << file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (!out.flush()) {
      std::remove(unfinished.c_str());
      return;
    }
  }
  if (std::rename(unfinished.c_str(), path) != 0) std::remove(unfinished.c_str());
}

}  // namespace muster
