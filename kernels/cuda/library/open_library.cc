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

// Returns null if the folder has no such file, or if the file does not load; in the latter case,
// sets `error` to dlerror() if it is still empty.
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
  LibrarySearchPath search_path;
  const char* const named = std::getenv("MUSTER_CUDA_LIBRARY_PATH");
  if (named != nullptr) search_path.first = absl::StrSplit(named, ':', absl::SkipEmpty());
  const char* const home = std::getenv("CUDA_HOME");
  if (home != nullptr && *home != '\0') search_path.last.push_back(absl::StrCat(home, "/lib64"));
  search_path.last.push_back("/usr/local/cuda/lib64");
  search_path.last.push_back("/usr/local/cuda/lib");
  return search_path;
}

absl::StatusOr<void*> OpenLibrary(const std::vector<std::string>& names,
                                  const LibrarySearchPath& search_path) {
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
  void* library = open_in_all(search_path.first);
  for (const std::string& name : names) {
    if (library == nullptr) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) library = open_in_all(search_path.last);
  if (library != nullptr) return library;
  if (!error.empty()) return absl::NotFoundError(absl::StrCat("CUDA: ", error));
  std::vector<std::string> where = search_path.first;
  where.push_back("the dynamic linker's path");
  where.insert(where.end(), search_path.last.begin(), search_path.last.end());
  return absl::NotFoundError(
      absl::StrCat("CUDA: no ", absl::StrJoin(names, " or "), " in ", absl::StrJoin(where, ", ")));
}

}  // namespace muster::kernels::cuda
