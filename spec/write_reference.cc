// Prints the content of docs/reference/spec.md.
#include <cstdio>

#include "spec/explain.h"

int main() {
  std::fputs(muster::spec::SpecReference().c_str(), stdout);
  return 0;
}
