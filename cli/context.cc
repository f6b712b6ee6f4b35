#include "cli/context.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_split.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/output/words.h"
#include "nlohmann/json.hpp"

namespace muster::cli {

const std::map<std::string, Output>& Outputs() {
  static const auto& outputs = *new std::map<std::string, Output>{{"table", Output::kTable},
                                                                  {"wide", Output::kWide},
                                                                  {"json", Output::kJson},
                                                                  {"yaml", Output::kYaml},
                                                                  {"name", Output::kName}};
  return outputs;
}

void Context::Print(const nlohmann::ordered_json& value) const {
  console.Out(output == Output::kYaml ? YamlText(value) : JsonText(value));
}

void Context::PrintOneOrList(std::vector<nlohmann::ordered_json> documents,
                             size_t requested) const {
  if (!structured()) return;
  if (requested > 1) return Print(nlohmann::ordered_json(std::move(documents)));
  if (!documents.empty()) Print(documents.front());
}

void Context::Show(const std::string& name, const nlohmann::ordered_json& document,
                   absl::string_view text) const {
  if (structured()) return Print(document);
  console.Out(output == Output::kName ? name + "\n" : std::string(text));
}

int Context::ForEach(const std::vector<std::string>& names, DocumentCall call) const {
  int exit_code = kExitSuccess;
  std::vector<nlohmann::ordered_json> documents;
  for (const std::string& name : names) {
    absl::StatusOr<nlohmann::ordered_json> document = call(name);
    if (document.ok()) {
      documents.push_back(*std::move(document));
    } else {
      exit_code = Fail(document.status());
    }
  }
  PrintOneOrList(std::move(documents), names.size());
  return exit_code;
}

int Context::Fail(const absl::Status& status) const { return Fail(status, ExitCodeOf(status)); }

int Context::Fail(const absl::Status& status, int exit_code) const {
  console.ClearStatus();
  if (absl::IsCancelled(status)) console.EraseEcho();  // the terminal's echo of Ctrl-C
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    console.Note("muster: ", Printable(line));
  }
  return exit_code;
}

ClusterClient::Options Context::client_options() const {
  ClusterClient::Options options;
  options.address = coordinator;
  options.security = security;
  if (const char* token = std::getenv("MUSTER_TOKEN"); token != nullptr) {
    options.security.token = token;
  }
  return options;
}

}  // namespace muster::cli
