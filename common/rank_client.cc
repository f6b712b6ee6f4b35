#include "common/rank_client.h"

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/grpc/channel.h"
#include "common/status.h"

namespace muster {
namespace {

template <typename Number>
absl::StatusOr<Number> NumberVariable(const char* name, const char* program) {
  ASSIGN_OR_RETURN(const std::string text, RankVariable(name, program));
  Number number = 0;
  if (!absl::SimpleAtoi(text, &number)) {
    return absl::InvalidArgumentError(absl::StrCat(name, "=", text, " is not a number"));
  }
  return number;
}

}  // namespace

absl::StatusOr<std::string> RankVariable(const char* name, const char* program) {
  const char* const value = std::getenv(name);
  if (value != nullptr && *value != '\0') return std::string(value);
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is not set; ", program, " must be started by muster-worker"));
}

absl::StatusOr<v1::RankIdentity> ReadRankIdentity(const char* program) {
  v1::RankIdentity identity;
  ASSIGN_OR_RETURN(*identity.mutable_job_id(), RankVariable("MUSTER_JOB_ID", program));
  ASSIGN_OR_RETURN(*identity.mutable_token(), RankVariable("MUSTER_RANK_TOKEN", program));
  ASSIGN_OR_RETURN(const auto generation, NumberVariable<uint64_t>("MUSTER_GENERATION", program));
  ASSIGN_OR_RETURN(const auto rank, NumberVariable<uint32_t>("RANK", program));
  identity.set_generation(generation);
  identity.set_rank(rank);
  return identity;
}

std::shared_ptr<grpc::Channel> OpenWorkerChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  return OpenChannel(target, std::move(arguments));
}

}  // namespace muster
