#include "tests/gpu/ptx/runtime/call_faults.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace muster::ptx {

void CallFaults::Add(std::string_view function, uint64_t call, cudaError_t error) {
  faults_.insert({std::string(function), {call - 1, error}});
}

absl::Status CallFaults::AddAll(std::string_view text) {
  const absl::string_view all(text.data(), text.size());
  for (const std::string& one :
       std::vector<std::string>(absl::StrSplit(all, ',', absl::SkipEmpty()))) {
    const std::vector<std::string> fields = absl::StrSplit(one, ':');
    uint64_t call = 0;
    int error = 0;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &call) || call == 0 ||
        !absl::SimpleAtoi(fields[2], &error)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", one, "\" is not FUNCTION:CALL:ERROR"));
    }
    Add(fields[0], call, static_cast<cudaError_t>(error));
  }
  return absl::OkStatus();
}

cudaError_t CallFaults::Take(std::string_view function) {
  cudaError_t taken = cudaSuccess;
  const auto [first, last] = faults_.equal_range(function);
  for (auto fault = first; fault != last;) {
    if (fault->second.calls_before > 0) {
      --fault->second.calls_before;
      ++fault;
    } else {
      taken = fault->second.error;
      fault = faults_.erase(fault);
    }
  }
  return taken;
}

}  // namespace muster::ptx
