// Opens Muster's plugins: shared libraries loaded at run time because their dependencies, such as
// CUDA or MPI, are not installed on every machine.
#ifndef MUSTER_COMMON_PLUGIN_H_
#define MUSTER_COMMON_PLUGIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

struct Plugin {
  std::string path;
  void* entry = nullptr;  // the function that returns the plugin's interface
};

// Opens the first of `places` that exists, with dlopen's `flags`; it is never closed. Errors start
// with `what`. NOT_FOUND names the places, or the missing dependency of the plugin;
// FAILED_PRECONDITION if the library has no function `entry`. Thread-safe.
absl::StatusOr<Plugin> OpenPlugin(absl::string_view what, const std::vector<std::string>& places,
                                  const char* entry, int flags);

}  // namespace muster

#endif  // MUSTER_COMMON_PLUGIN_H_
