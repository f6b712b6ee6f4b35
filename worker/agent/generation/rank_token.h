// The token that authenticates a rank to its worker. It is an entry of the rank's environment.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANK_TOKEN_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANK_TOKEN_H_

#include <string>

#include "worker/shim/protocol.h"

namespace muster::agent {

inline constexpr char kTokenVariable[] = "MUSTER_RANK_TOKEN=";

// The token in the environment of a started rank; empty if there is none.
std::string TokenIn(const shim::Instructions& instructions);

// The entry (NAME=value) of the environment of the rank's shim and companions, by which they are
// found when the shim is lost: see worker/shim/mark.h. Without a mark it is the rank's token, which
// all processes of the rank have that keep their environment.
std::string ShimEntry(const shim::Instructions& instructions);

// Compares in constant time. False for empty tokens.
bool SameToken(const std::string& a, const std::string& b);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANK_TOKEN_H_
