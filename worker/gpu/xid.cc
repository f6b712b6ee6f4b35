#include "worker/gpu/xid.h"

#include "absl/strings/str_cat.h"

namespace muster::gpu {

Xid LookUpXid(uint64_t number) {
  switch (number) {
    case 13:
      return {XidKind::kApplication, "exception in a kernel, e.g. an illegal address"};
    case 31:
      return {XidKind::kApplication, "memory page fault, an illegal address"};
    case 43:
      return {XidKind::kApplication, "channel stopped after an error of its program"};
    case 45:
      return {XidKind::kApplication, "work removed because its program ended or after an error"};
    case 68:
      return {XidKind::kApplication, "video processor exception"};
    case 109:
      return {XidKind::kApplication, "context switch timed out"};

    case 46:
      return {XidKind::kFatal, "GPU stopped processing"};
    case 48:
      return {XidKind::kFatal, "double bit ECC error"};
    case 62:
      return {XidKind::kFatal, "internal micro-controller halted"};
    case 64:
      return {XidKind::kFatal, "a bad memory row or page could not be retired"};
    case 74:
      return {XidKind::kFatal, "NVLink error"};
    case 79:
      return {XidKind::kFatal, "GPU has fallen off the bus"};
    case 95:
      return {XidKind::kFatal, "uncontained ECC error"};
    case 119:
      return {XidKind::kFatal, "GPU system processor (GSP) does not respond"};
    case 120:
      return {XidKind::kFatal, "GPU system processor (GSP) error"};
    case 140:
      return {XidKind::kFatal, "unrecovered ECC error"};

    case 61:
      return {XidKind::kNotice, "internal micro-controller warning"};
    case 63:
      return {XidKind::kNotice, "a bad memory row or page was retired"};
    case 92:
      return {XidKind::kNotice, "high rate of corrected ECC errors"};
    case 94:
      return {XidKind::kNotice, "contained ECC error, which ends the affected program"};
    default:
      return {};
  }
}

std::string XidText(uint64_t number) {
  const Xid xid = LookUpXid(number);
  const bool known = xid.meaning[0] != '\0';
  return absl::StrCat("Xid ", number, known ? ", " : "", xid.meaning);
}

}  // namespace muster::gpu
