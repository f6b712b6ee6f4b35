// Nodes in words.
#ifndef MUSTER_CLI_NODE_TEXT_H_
#define MUSTER_CLI_NODE_TEXT_H_

#include <string>

#include "absl/types/span.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::cli {

// `muster node list`; more columns when wide.
std::string NodeTable(absl::Span<const v1::Node> nodes, bool wide);

}  // namespace muster::cli

#endif  // MUSTER_CLI_NODE_TEXT_H_
