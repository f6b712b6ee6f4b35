// Writes the reference pages into the source tree; started by `bazel run`.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "docs/reference/pages.h"

int main() {
  const char* root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (root == nullptr) {
    std::fprintf(stderr, "BUILD_WORKSPACE_DIRECTORY is not set; use `%s`\n",
                 muster::reference::kWriteCommand);
    return 2;
  }
  for (const muster::reference::Page& page : muster::reference::kPages) {
    const std::filesystem::path path = std::filesystem::path(root) / page.path;
    std::ofstream file(path);
    file << page.text() << std::flush;
    if (!file) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return 1;
    }
  }
  return 0;
}
