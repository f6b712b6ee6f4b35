// Single fields of a spec as ToYaml writes them.
#ifndef MUSTER_SPEC_TO_YAML_H_
#define MUSTER_SPEC_TO_YAML_H_

#include <string>

#include "google/protobuf/message.h"

namespace muster::spec {

// Whether the field holds something, or a zero that means itself.
bool IsShown(const google::protobuf::Message& message,
             const google::protobuf::FieldDescriptor& field);

// Its value in flow style: "0.1", "25MiB", "{name: sgd}".
std::string ValueText(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_TO_YAML_H_
