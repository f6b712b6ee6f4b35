// Placeholders in the arguments of commands.
#ifndef MUSTER_WORKER_AGENT_GENERATION_PLACEHOLDERS_H_
#define MUSTER_WORKER_AGENT_GENERATION_PLACEHOLDERS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace muster::agent {

struct Placeholders {
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  uint32_t node_rank = 0;
  std::string node;                                    // name
  std::optional<uint32_t> array_index = std::nullopt;  // of a task of an array
};

// `argument` with {rank}, {local_rank}, {node_rank}, {node} and, in a task of an array,
// {array_index} replaced. Unchanged: other braces, ${rank}, which a shell expands, and arguments
// with white space, which are usually programs.
std::string ReplacePlaceholders(absl::string_view argument, const Placeholders& values);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_PLACEHOLDERS_H_
