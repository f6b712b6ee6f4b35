#include "tests/gpu/ptx/form.h"

namespace muster::ptx {

const FormTable& Forms() {
  static const FormTable* const forms = [] {
    auto* const made = new FormTable;
    AddIntegerForms(*made);
    AddFloatForms(*made);
    AddComparisonForms(*made);
    AddConversionForms(*made);
    AddAddressForms(*made);
    return made;
  }();
  return *forms;
}

}  // namespace muster::ptx
