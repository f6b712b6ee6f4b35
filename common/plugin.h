// Libraries of Muster's own that a program opens at run time, since not every machine has what they
// are linked with.
#ifndef MUSTER_COMMON_PLUGIN_H_
#define MUSTER_COMMON_PLUGIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

struct Plugin {
  std::string path;
  void* entry = nullptr;  // the function that gives its interface
};

// The first of `places` that exists, with `flags` as dlopen's; never closed. `what` begins every
// error: NOT_FOUND names the places, or the library that the plug-in itself lacks;
// FAILED_PRECONDITION: it has no function `entry`. Thread-safe.
absl::StatusOr<Plugin> OpenPlugin(absl::string_view what, const std::vector<std::string>& places,
                                  const char* entry, int flags);

}  // namespace muster

#endif  // MUSTER_COMMON_PLUGIN_H_
