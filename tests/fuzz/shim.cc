// The files that a worker and a shim exchange.
#include <optional>
#include <string>

#include "tests/fuzz/check.h"
#include "worker/shim/credentials.h"
#include "worker/shim/protocol.h"

namespace muster {
namespace {

// A record that was read must be the same after it was written and read again.
template <typename Decode, typename Encode>
void CheckRoundTrip(const std::string& text, Decode decode, Encode encode) {
  const auto first = decode(text);
  if (!first.has_value()) return;
  const std::string encoded = encode(*first);
  const auto second = decode(encoded);
  fuzz::Check(second.has_value() && encode(*second) == encoded,
              "a record is read as it was written", encoded);
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const std::string text = fuzz::Text(data, size);
  CheckRoundTrip(text, shim::DecodeInstructions, shim::EncodeInstructions);
  CheckRoundTrip(text, shim::DecodeExitRecord, shim::EncodeExitRecord);
  CheckRoundTrip(text, shim::DecodeInspection, shim::EncodeInspection);
  CheckRoundTrip(text, shim::DecodeCredentials, shim::EncodeCredentials);
  const std::optional<shim::Credentials> user = shim::DecodeCredentials(text);
  fuzz::Check(!user.has_value() || user->uid != 0, "no rank runs as root", text);
  return 0;
}
