// Formats nodes as text.
#ifndef MUSTER_CLI_TEXT_NODE_TEXT_H_
#define MUSTER_CLI_TEXT_NODE_TEXT_H_

#include <string>

#include "absl/types/span.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::cli {

// The table of `muster node list`; `wide` adds columns.
std::string NodeTable(absl::Span<const v1::Node> nodes, bool wide);

// The text of `muster node describe`: one `key: value` per line, then a table of slots.
std::string NodeDescription(const v1::Node& node);

// "gpu-03 is cordoned (ECC errors); 2 of 8 slots in use by train-x7k2".
std::string NodeSentence(const v1::Node& node);

// Whether the newest self-test has ended and all of its checks succeeded.
bool SelfTestSucceeded(const v1::Node& node);

// "gpu-03: self-test failed: disk: /data: 0 bytes free".
std::string SelfTestSentence(const v1::Node& node);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_NODE_TEXT_H_
