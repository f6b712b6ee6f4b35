// The error file of a rank, and the end of its stderr.
#include "worker/agent/generation/ranks/exit_info.h"

#include <optional>
#include <string>

#include "common/limits.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/temporary_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  static const fuzz::TemporaryFolder folder;
  const std::string text = fuzz::Text(data, size);
  const std::optional<agent::ProgramError> error =
      agent::ReadErrorFile(folder.Write("error.json", text));
  if (error.has_value()) {
    fuzz::Check(!error->message.empty(), "a reported error has a message", text);
    fuzz::Check(error->peer_rank.value_or(0) < limits::kRanksPerJob, "the lost rank exists", text);
    fuzz::Check(error->status_code.value_or(1) > 0 && error->status_code.value_or(1) <= 16,
                "the code exists", text);
  }
  const std::optional<std::string> line = agent::PythonError(text);
  fuzz::Check(!line.has_value() || line->find('\n') == std::string::npos, "an error is one line",
              text);
  agent::IsPeerLostMessage(text);
  return 0;
}
