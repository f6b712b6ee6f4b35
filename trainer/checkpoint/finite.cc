#include "trainer/checkpoint/finite.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "trainer/exit_code.h"

namespace muster::train {
namespace {

// Number of values whose exponent has all bits set. Without branches, so that it is vectorized.
size_t CountNonFinite(absl::Span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000;
  size_t count = 0;
  for (const float value : values) {
    count += (absl::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1 : 0;
  }
  return count;
}

// Integers are finite.
size_t CountNonFinite(absl::Span<const int64_t>) { return 0; }

}  // namespace

absl::Status CheckFinite(absl::string_view file, absl::Span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    const auto [count, size] = std::visit(
        [](const auto& values) {
          return std::pair(CountNonFinite(absl::MakeConstSpan(values)), values.size());
        },
        tensor.values);
    if (count == 0) continue;
    return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                            file, ": tensor ", tensor.name, " has ", count, " of ", size,
                            " values that are NaN or infinite: training diverged; lower the "
                            "learning rate, clip gradients, or use bfloat16")),
                        kExitDiverged);
  }
  return absl::OkStatus();
}

}  // namespace muster::train
