#include "spec/fields.h"

#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/field_table.h"

namespace muster::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

const FieldTable& Table() {
  static const FieldTable& table = *[] {
    auto* entries = new FieldTable();
    AddJobFields(*entries);
    AddTrainFields(*entries);
    AddModelFields(*entries);
    AddLearningFields(*entries);
    AddSynonyms(*entries);
    return entries;
  }();
  return table;
}

using Index = absl::flat_hash_map<const FieldDescriptor*, const Field*>;

Index MakeIndex() {
  Index index;
  for (const auto& [name, field] : Table()) {
    const FieldDescriptor* descriptor = v1::JobSpec::descriptor()->file()->pool()->FindFieldByName(
        absl::StrCat("muster.v1.", name));
    if (descriptor != nullptr) index.emplace(descriptor, &field);
  }
  return index;
}

}  // namespace

bool Range::Contains(double value) const {
  if (std::isnan(value) || (std::isinf(value) && bounded_below())) return false;
  return (low_excluded ? value > low : value >= low) &&
         (high_excluded ? value < high : value <= high);
}

const Field& FieldOf(const FieldDescriptor& field) {
  static const Index& index = *new Index(MakeIndex());
  static const Field& none = *new Field();
  const auto entry = index.find(&field);
  return entry == index.end() ? none : *entry->second;
}

std::vector<std::string> TableEntries() {
  std::vector<std::string> names;
  for (const auto& entry : Table()) names.push_back(entry.first);
  return names;
}

std::string Summary(const Field& field) {
  const std::string text(field.help.substr(0, field.help.find(". ")));
  return text.empty() || text.back() != '.' ? text : text.substr(0, text.size() - 1);
}

}  // namespace muster::spec
