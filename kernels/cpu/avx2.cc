#define MUSTER_INSTRUCTION_SET avx2

#include "kernels/cpu/table_body.h"
