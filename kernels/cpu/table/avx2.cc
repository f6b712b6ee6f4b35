#define MUSTER_INSTRUCTION_SET avx2

#include "kernels/cpu/table/table_body.h"
