#include "common/grpc/log.h"

#include <grpc/support/log.h>

#include <cstdlib>
#include <utility>

namespace muster {
namespace {

using Sink = std::function<void(const std::string&)>;

// Never freed: gRPC's threads may outlive main.
const Sink* sink_in_use = nullptr;

bool Install(Sink sink) {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return false;
  sink_in_use = new Sink(std::move(sink));
  gpr_set_log_function([](gpr_log_func_args* line) { (*sink_in_use)(line->message); });
  return true;
}

}  // namespace

void TakeGrpcLog(Sink sink) {
  static const bool installed = Install(std::move(sink));
  static_cast<void>(installed);
}

}  // namespace muster
