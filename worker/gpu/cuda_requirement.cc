#include "worker/gpu/cuda_requirement.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/gpu/build_cuda_version.h"

namespace muster::gpu {
namespace {

// As in CUDART_VERSION.
constexpr int kMajor = 1000, kMinor = 10;

std::string Text(int version) {
  return absl::StrCat(version / kMajor, ".", version % kMajor / kMinor);
}

// The first driver of each major version, from NVIDIA's CUDA compatibility guide.
std::string FirstDriver(int major) {
  switch (major) {
    case 12:
      return "525.60.13";
    case 13:
      return "580.65.06";
    default:
      return "";
  }
}

}  // namespace

absl::StatusOr<int> ParseRequiredCuda(absl::string_view text) {
  if (text == "auto") return kBuildCudaVersion;
  if (text == "none") return 0;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  int major = 0, minor = 0;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &major) &&
      absl::SimpleAtoi(parts[1], &minor) && major > 0 && major < 100 && minor >= 0 && minor < 100) {
    return major * kMajor + minor * kMinor;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--required-cuda=", text, ": neither auto, none nor a version such as 12.8"));
}

std::string DriverProblem(int required, std::optional<int> supported,
                          absl::string_view driver_version) {
  if (!supported.has_value() || *supported / kMajor >= required / kMajor) return "";
  const std::string first = FirstDriver(required / kMajor);
  return absl::StrCat("driver ", driver_version, " supports CUDA ", Text(*supported),
                      ", train jobs need CUDA ", Text(required), ": install driver ",
                      first.empty() ? "of that version" : absl::StrCat(first, " or newer"),
                      ", or set --required-cuda=none if this node runs command jobs only");
}

}  // namespace muster::gpu
