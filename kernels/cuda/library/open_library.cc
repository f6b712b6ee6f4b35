#include "kernels/cuda/library/open_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace muster::kernels::cuda {
namespace {

// Returns null if the folder has no such file, or, with dlerror() in `error` unless one is there
// already, if the file does not load.
void* OpenIn(const std::string& folder, const std::string& name, std::string& error) {
  const std::string path = std::filesystem::path(folder) / name;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nullptr;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr && error.empty()) error = dlerror();
  return library;
}

}  // namespace

LibrarySearchPath CudaLibrarySearchPath() {
  LibrarySearchPath places;
  const char* const named = std::getenv("MUSTER_CUDA_LIBRARY_PATH");
  if (named != nullptr) places.first = absl::StrSplit(named, ':', absl::SkipEmpty());
  const char* const home = std::getenv("CUDA_HOME");
  if (home != nullptr && *home != '\0') places.last.push_back(absl::StrCat(home, "/lib64"));
  places.last.push_back("/usr/local/cuda/lib64");
  places.last.push_back("/usr/local/cuda/lib");
  return places;
}

absl::StatusOr<void*> OpenLibrary(const std::vector<std::string>& names,
                                  const LibrarySearchPath& places) {
  std::string error;
  const auto open_in_all = [&](const std::vector<std::string>& folders) -> void* {
    for (const std::string& folder : folders) {
      for (const std::string& name : names) {
        void* const library = OpenIn(folder, name, error);
        if (library != nullptr) return library;
      }
    }
    return nullptr;
  };
  void* library = open_in_all(places.first);
  for (const std::string& name : names) {
    if (library == nullptr) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) library = open_in_all(places.last);
  if (library != nullptr) return library;
  if (!error.empty()) return absl::NotFoundError(absl::StrCat("CUDA: ", error));
  std::vector<std::string> where = places.first;
  where.push_back("the dynamic linker's path");
  where.insert(where.end(), places.last.begin(), places.last.end());
  return absl::NotFoundError(
      absl::StrCat("CUDA: no ", absl::StrJoin(names, " or "), " in ", absl::StrJoin(where, ", ")));
}

}  // namespace muster::kernels::cuda
