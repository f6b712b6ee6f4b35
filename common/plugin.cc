#include "common/plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster {

absl::StatusOr<Plugin> OpenPlugin(absl::string_view what, const std::vector<std::string>& places,
                                  const char* entry, int flags) {
  for (const std::string& place : places) {
    std::error_code error;
    if (!std::filesystem::exists(place, error)) continue;
    void* const opened = dlopen(place.c_str(), flags);
    // dlerror() names the missing library.
    if (opened == nullptr) return absl::NotFoundError(absl::StrCat(what, ": ", dlerror()));
    void* const function = dlsym(opened, entry);
    if (function == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(what, ": ", place, " is not a Muster plugin: it has no symbol ", entry));
    }
    return Plugin{place, function};
  }
  return absl::NotFoundError(absl::StrCat(what, ": no ", absl::StrJoin(places, ", no ")));
}

}  // namespace muster
