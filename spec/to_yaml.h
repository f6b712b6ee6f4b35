// Values of single fields of a spec, as ToYaml writes them.
#ifndef MUSTER_SPEC_TO_YAML_H_
#define MUSTER_SPEC_TO_YAML_H_

#include <string>

#include "google/protobuf/message.h"

namespace muster::spec {

// Whether ToYaml writes the field: it is set, or its zero is a value of its own.
bool IsShown(const google::protobuf::Message& message,
             const google::protobuf::FieldDescriptor& field);

// A field that is not a message; of a list the element at `index`.
std::string ScalarText(const google::protobuf::Message& message,
                       const google::protobuf::FieldDescriptor& field, int index);

// The field's value in flow style: "0.1", "25MiB", "{name: sgd}".
std::string ValueText(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_TO_YAML_H_
