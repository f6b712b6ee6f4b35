// Nodes in words.
#ifndef MUSTER_CLI_TEXT_NODE_TEXT_H_
#define MUSTER_CLI_TEXT_NODE_TEXT_H_

#include <string>

#include "absl/types/span.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::cli {

// `muster node list`; more columns when wide.
std::string NodeTable(absl::Span<const v1::Node> nodes, bool wide);

// `muster node describe`: `key: value` by line, then its slots.
std::string NodeDescription(const v1::Node& node);

// "gpu-03 is cordoned (ECC errors); 2 of 8 slots in use by train-x7k2".
std::string NodeSentence(const v1::Node& node);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_NODE_TEXT_H_
