// State that all verbs of the command line share.
#ifndef MUSTER_CLI_CONTEXT_H_
#define MUSTER_CLI_CONTEXT_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/client.h"
#include "cli/output/console.h"
#include "common/security/client_security.h"
#include "google/protobuf/message.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::cli {

enum class Output { kTable, kWide, kJson, kYaml, kName };
// Output formats by their names, as given to -o.
const std::map<std::string, Output>& Outputs();

// One run of the program. A verb's Add… function declares its subcommand; parsing a command line
// that names it sets `action`, which then does the work and returns the exit status.
struct Context {
  explicit Context(Console& console) : console(console) {}

  Console& console;
  std::string coordinator;
  security::ClientSecurity security;
  Output output = Output::kTable;
  // The arguments after `--` on the command line.
  std::vector<std::string> trailing;
  std::function<int()> action;

  bool structured() const { return output == Output::kJson || output == Output::kYaml; }
  // Prints `value` to stdout, as JSON or YAML.
  void Print(const nlohmann::ordered_json& value) const;
  // Prints the document of the only requested item, or a list if several were requested. Items that
  // could not be read are not in `documents`. Prints nothing in other formats than JSON and YAML.
  void PrintOneOrList(std::vector<nlohmann::ordered_json> documents, size_t requested) const;
  // Prints one item in the output format: its document, its name in a line, or `text`.
  void Show(const std::string& name, const nlohmann::ordered_json& document,
            absl::string_view text) const;
  // Prints a list in the output format: the documents, the names one per line, `table()`, or a note
  // instead of a table without rows.
  template <typename Items, typename NameOf, typename DocumentOf, typename Table>
  void ShowList(const Items& items, NameOf name_of, DocumentOf document_of, absl::string_view none,
                Table table) const {
    if (structured()) {
      std::vector<decltype(document_of(*items.begin()))> documents;
      for (const auto& item : items) documents.push_back(document_of(item));
      Print(documents);
    } else if (output == Output::kName) {
      for (const auto& item : items) console.Out(name_of(item) + "\n");
    } else if (items.empty()) {
      console.Note(none);
    } else {
      console.Out(table());
    }
  }
  // Calls `call` for each name, and continues after a failure. Then prints the documents that it
  // returned, in JSON and YAML only; `call` prints other formats. Returns the exit code of the last
  // failure.
  using DocumentCall =
      absl::FunctionRef<absl::StatusOr<nlohmann::ordered_json>(const std::string&)>;
  int ForEach(const std::vector<std::string>& names, DocumentCall call) const;
  // Prints each line of the error message to stderr and returns the exit code.
  int Fail(const absl::Status& status) const;
  int Fail(const absl::Status& status, int exit_code) const;
  ClusterClient::Options client_options() const;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_CONTEXT_H_
