// Text of single fields of a spec, in the syntax of ToYaml.
#ifndef MUSTER_SPEC_YAML_TO_YAML_H_
#define MUSTER_SPEC_YAML_TO_YAML_H_

#include <string>

#include "spec/schema.h"

namespace muster::spec {

// Whether ToYaml writes the field: it is set, or zero is one of its valid values.
bool IsShown(const Message& message, const FieldDescriptor& field);

// The value of a field that is not a message; for a list, the element at `index`.
std::string ScalarText(const Message& message, const FieldDescriptor& field, int index);

// The field's value in flow style: "0.1", "25MiB", "{name: sgd}".
std::string ValueText(const Message& message, const FieldDescriptor& field);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_YAML_TO_YAML_H_
