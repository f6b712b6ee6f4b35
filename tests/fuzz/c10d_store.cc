// Bytes that clients send to the hosted c10d store.
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "tests/fuzz/check.h"
#include "worker/c10d_store/protocol.h"
#include "worker/c10d_store/store.h"

namespace muster {
namespace {

using namespace c10d_store;

// All answers to a client whose bytes arrive in pieces of this size, and why it was refused.
std::string Serve(const std::string& bytes, size_t piece) {
  std::string answers;
  Store store([&answers](ConnectionId client, const std::string& answer) {
    answers += std::to_string(client) + ":" + answer;
  });
  RequestDecoder decoder;
  std::string refusal;
  int64_t requests = 0;
  for (size_t at = 0; at < bytes.size() && refusal.empty(); at += piece) {
    decoder.Append(std::string_view(bytes).substr(at, piece));
    while (refusal.empty()) {
      auto next = decoder.Next();
      if (std::holds_alternative<Incomplete>(next)) break;
      // Requests come from two clients in turn, so that they wake each other.
      if (auto* request = std::get_if<Request>(&next)) {
        ++requests;
        refusal = store.Handle(requests % 2, std::move(*request), requests).value_or("");
      }
      if (const auto* refused = std::get_if<Refused>(&next)) refusal = refused->reason;
    }
  }
  store.OnClose(0);
  store.OnClose(1);
  fuzz::Check(store.waits().empty(), "closed clients do not wait");
  return answers + refusal;
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const std::string bytes = fuzz::Text(data, size);
  const std::string answers = Serve(bytes, bytes.size() + 1);
  fuzz::Check(answers == Serve(bytes, 7), "answers do not depend on how bytes arrive", answers);
  return 0;
}
