// Generates the reference pages of this folder, except spec.md, from the tables and declarations
// that the programs themselves use.
#ifndef MUSTER_DOCS_REFERENCE_PAGES_H_
#define MUSTER_DOCS_REFERENCE_PAGES_H_

#include <string>

namespace muster::reference {

// Each returns the content of a page, in Markdown.
std::string CliPage();
std::string EnvironmentPage();
std::string ExitCodesPage();
std::string MethodsPage();
std::string MetricsPage();

struct Page {
  const char* path;  // relative to the root of the source tree
  std::string (*text)();
};

inline constexpr Page kPages[] = {
    {"docs/reference/cli.md", CliPage},
    {"docs/reference/environment.md", EnvironmentPage},
    {"docs/reference/exit_codes.md", ExitCodesPage},
    {"docs/reference/methods.md", MethodsPage},
    {"docs/reference/metrics.md", MetricsPage},
};

// How to update the pages, for the pages themselves and the test.
inline constexpr char kWriteCommand[] = "bazel run //docs/reference:write";

}  // namespace muster::reference

#endif  // MUSTER_DOCS_REFERENCE_PAGES_H_
