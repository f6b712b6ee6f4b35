#include "worker/shim/inspection.h"

#include <cstdlib>

#include "worker/shim/fields.h"

namespace muster::shim {

std::string EncodeInspection(const Inspection& inspection) {
  return EncodeFields({{"state", inspection.state},
                       {"cpu_ratio", std::to_string(inspection.cpu_ratio)},
                       {"waits_in", inspection.waits_in},
                       {"stack", inspection.stack}});
}

std::optional<Inspection> DecodeInspection(const std::string& text) {
  const std::optional<Fields> fields = DecodeFields(text);
  if (!fields.has_value() || fields->empty()) return std::nullopt;
  Inspection inspection;
  for (const auto& [key, value] : *fields) {
    if (key == "state") inspection.state = value;
    if (key == "cpu_ratio") inspection.cpu_ratio = std::strtod(value.c_str(), nullptr);
    if (key == "waits_in") inspection.waits_in = value;
    if (key == "stack") inspection.stack = value;
  }
  return inspection;
}

}  // namespace muster::shim
