#include "collectives/nccl/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

constexpr char kFile[] = "libnccl.so.2";

absl::StatusOr<std::shared_ptr<const NcclLibrary>> Load(void* opened, const std::string& path) {
  auto library = std::make_shared<NcclLibrary>();
  library->path = path;
  std::vector<std::string> absent;
  const auto find = [opened](const char* symbol, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(opened, symbol));
    return function != nullptr;
  };
#define FIND(name, symbol, parameters) \
  if (!find(#symbol, library->name)) absent.push_back(#symbol);
  NCCL_REQUIRED_FUNCTIONS(FIND)
  NCCL_TEXT_FUNCTIONS(FIND)
#undef FIND
#define FIND(name, symbol, parameters) find(#symbol, library->name);
  NCCL_OPTIONAL_FUNCTIONS(FIND)
#undef FIND
  if (library->version != nullptr) library->version(&library->version_code);
  if (!absent.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL: ", path, " does not export ", absent.front()));
  }
  if (library->version_code < kNcclOldestVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "NCCL: ", path, " is version ", library->VersionText(), "; 2.18 or newer is required"));
  }
  return {std::move(library)};
}

}  // namespace

std::string NcclLibrary::VersionText() const {
  // Before 2.9 the version code had four digits.
  const int major = version_code < 10000 ? version_code / 1000 : version_code / 10000;
  const int minor = version_code < 10000 ? version_code % 1000 / 100 : version_code % 10000 / 100;
  return absl::StrCat(major, ".", minor, ".", version_code % 100);
}

absl::Status NcclLibrary::StatusOf(NcclResult code, absl::string_view what, NcclComm comm) const {
  if (code == kNcclSuccess || code == kNcclInProgress) return absl::OkStatus();
  const char* const words = error_string(code);
  const char* const last = last_error(comm);
  std::string message =
      absl::StrCat("NCCL: ", what, ": ", words == nullptr ? absl::StrCat("error ", code) : words);
  if (last != nullptr && *last != '\0') absl::StrAppend(&message, ": ", last);
  switch (code) {
    case kNcclRemoteError:
    case kNcclSystemError:
      return absl::UnavailableError(message);
    case kNcclInvalidArgument:
    case kNcclInvalidUsage:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

void SetNcclEnvironment() { setenv("NCCL_DEBUG", "WARN", /*overwrite=*/0); }

std::vector<std::string> NcclLibraryPlaces() {
  std::vector<std::string> places;
  if (const char* folders = std::getenv("MUSTER_CUDA_LIBRARY_PATH"); folders != nullptr) {
    for (const auto folder : absl::StrSplit(folders, ':', absl::SkipEmpty())) {
      places.push_back(absl::StrCat(folder, "/", kFile));
    }
  }
  places.push_back(kFile);
  for (const char* folder : {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"}) {
    places.push_back(absl::StrCat(folder, "/", kFile));
  }
  return places;
}

absl::StatusOr<std::shared_ptr<const NcclLibrary>> OpenNcclLibrary(const std::string& library) {
  std::vector<std::string> errors;
  for (const std::string& place :
       library.empty() ? NcclLibraryPlaces() : std::vector<std::string>{library}) {
    void* const opened = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened != nullptr) return Load(opened, place);
    errors.push_back(dlerror());  // starts with the name of the missing file
  }
  return absl::NotFoundError(absl::StrCat("NCCL: ", absl::StrJoin(errors, "; ")));
}

}  // namespace muster::collectives
