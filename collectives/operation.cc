#include "collectives/operation.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace muster::collectives {
namespace {

constexpr absl::string_view kKindNames[] = {"AllReduce", "ReduceScatter", "AllGather", "Broadcast",
                                            "Reduce",    "Gather",        "Scatter",   "AllToAll",
                                            "Send",      "Recv",          "Barrier"};
constexpr absl::string_view kReduceOpNames[] = {"sum", "min", "max"};

// A signature may come from another process, so unknown values must not crash.
template <size_t N>
absl::string_view NameOf(const absl::string_view (&names)[N], uint64_t index) {
  return index < N ? names[index] : "?";
}

bool Reduces(uint64_t kind) {
  return kind == static_cast<uint64_t>(Operation::Kind::kAllReduce) ||
         kind == static_cast<uint64_t>(Operation::Kind::kReduceScatter) ||
         kind == static_cast<uint64_t>(Operation::Kind::kReduce);
}

}  // namespace

OperationSignature SignatureOf(const Operation& operation) {
  OperationSignature signature;
  signature.what =
      static_cast<uint64_t>(operation.kind) | static_cast<uint64_t>(operation.type) << 8 |
      static_cast<uint64_t>(operation.op) << 16 | static_cast<uint64_t>(operation.root) << 32;
  signature.count = operation.count;
  return signature;
}

std::string Describe(const OperationSignature& signature) {
  const uint64_t kind = signature.what & 0xff;
  std::string text =
      absl::StrCat(NameOf(kKindNames, kind), " of ", signature.count, " ",
                   kernels::NameOf(static_cast<DataType>(signature.what >> 8 & 0xff)));
  if (Reduces(kind)) {
    absl::StrAppend(&text, " (", NameOf(kReduceOpNames, signature.what >> 16 & 0xff), ")");
  }
  if (const uint64_t root = signature.what >> 32; root != 0)
    absl::StrAppend(&text, ", root ", root);
  return text;
}

}  // namespace muster::collectives
