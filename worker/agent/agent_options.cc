#include "worker/agent/agent_options.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/http/address.h"
#include "common/limits.h"
#include "spec/units.h"
#include "worker/agent/lease/leases.h"
#include "worker/shim/log_file.h"

namespace muster::agent {

absl::Status CheckOptions(const AgentOptions& options) {
  std::vector<std::string> errors;
  if (!ParseAddress(options.coordinator).ok()) {
    errors.push_back(absl::StrCat("--coordinator: '", options.coordinator, "' is not HOST:PORT"));
  }
  bool plain = !options.name.empty() && options.name.size() <= limits::kNameLength;
  for (const char c : options.name) {
    plain = plain && (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                      absl::StrContains("-_.", absl::string_view(&c, 1)));
  }
  if (!plain) {
    errors.push_back(absl::StrCat("--name: '", options.name, "' is not a valid name; use 1 to ",
                                  limits::kNameLength, " letters, digits, '-', '_' and '.'"));
  }
  const std::string peers = CheckPeerListen(options.peer_listen, options.security.tls);
  if (!peers.empty()) errors.push_back(peers);
  if (options.data_dir.empty()) errors.push_back("--data-dir: must not be empty");
  if (options.rank_log_bytes > 0 && options.rank_log_bytes < shim::LogFile::kMinLimitBytes) {
    errors.push_back(absl::StrCat("--rank-log-bytes: ", spec::SizeText(options.rank_log_bytes),
                                  " is too small; set at least ",
                                  spec::SizeText(shim::LogFile::kMinLimitBytes),
                                  ", or 0 for no limit"));
  }
  const uint32_t slots = options.devices.slots.value_or(1);
  if (slots == 0 || slots > limits::kSlotsPerNode) {
    errors.push_back(absl::StrCat("--slots: must be from 1 to ", limits::kSlotsPerNode));
  }
  if (options.labels.size() > limits::kLabels) {
    errors.push_back(absl::StrCat("--labels: more than ", limits::kLabels, " labels"));
  }
  for (const auto& [key, value] : options.labels) {
    if (key.empty() || key.size() + value.size() > limits::kLabelBytes) {
      errors.push_back(absl::StrCat("--labels: '", key, "=", value,
                                    "' is not KEY=VALUE with at most ", limits::kLabelBytes,
                                    " bytes"));
    }
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
}

}  // namespace muster::agent
