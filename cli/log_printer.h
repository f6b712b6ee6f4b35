// Puts the logs of several ranks into one output, whole lines at a time.
#ifndef MUSTER_CLI_LOG_PRINTER_H_
#define MUSTER_CLI_LOG_PRINTER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "cli/output/console.h"

namespace muster::cli {

// One stream of one rank. Not thread-safe; several may share a console.
class LogPrinter {
 public:
  // `prefix` goes before every line.
  LogPrinter(Console& console, std::string prefix)
      : console_(console), prefix_(std::move(prefix)) {}

  void Write(absl::string_view data);
  // What is left without a line's end; the end is added where lines have a prefix.
  void Flush();

 private:
  Console& console_;
  const std::string prefix_;
  std::string partial_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOG_PRINTER_H_
